"""Screening is bounded by measured time; finals are balanced."""

import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.worker.devices import open_device
from attnctl.worker.finals import order_of_cycle
from attnctl.worker.timing import host_us, screen


@pytest.fixture(scope="module")
def cpu(surroundings):
    return open_device("torch", "cpu")


class Kernel:
    def __init__(self, seconds):
        self.seconds = seconds
        self.launches = 0

    def __call__(self):
        self.launches += 1
        time.sleep(self.seconds)


def test_slow_kernel_is_launched_a_few_times_only(cpu):
    """B44: 50 ms per launch and a second to spend."""
    kernel = Kernel(0.05)
    timing = screen(cpu, kernel, "warm")
    assert 3 <= timing.count <= 20
    assert kernel.launches - timing.count <= 5  # the estimate
    assert timing.min_us >= 50_000


def test_very_slow_kernel_is_sampled_three_times(cpu):
    kernel = Kernel(0.6)
    assert screen(cpu, kernel, "warm").count == 3
    assert kernel.launches == 4


def test_clearly_slower_kernel_is_given_up_after_the_estimate(cpu):
    kernel = Kernel(0.004)
    timing = screen(cpu, kernel, "warm", best_us=1_000)
    assert (timing.gave_up, timing.count, kernel.launches) == (True, 5, 5)


def test_kernel_within_twice_the_best_is_sampled(cpu):
    timing = screen(cpu, Kernel(0.001), "warm", best_us=100_000)
    assert (timing.gave_up, timing.count >= 30) == (False, True)


def test_sample_limit_holds(cpu):
    assert screen(cpu, Kernel(0), "warm", max_samples=40).count == 40


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_each_launch_is_followed_by_what_is_between(cpu, cache):
    seen = []
    samples = cpu.sample_us([lambda: seen.append("run")] * 3, cache, lambda: seen.append("between"))
    assert len(samples) == 3
    assert seen == ["run", "between"] * 3


def test_work_of_the_host_is_repeated_within_its_budget(cpu):
    slow, quick = Kernel(0.06), Kernel(0.001)
    assert host_us(cpu, slow) >= 60_000
    assert (slow.launches, host_us(cpu, quick) >= 1_000, quick.launches) == (1, True, 5)


def test_percentiles_of_known_samples(cpu, monkeypatch):
    values = iter([1.0] * 5 + [float(each) for each in range(1, 12)])
    monkeypatch.setattr(cpu, "sample_us", lambda runs, cache, between=None: [next(values) for _ in runs])
    timing = screen(cpu, lambda: None, "cold", max_samples=11)
    assert (timing.min_us, timing.p20_us, timing.median_us, timing.p80_us) == (1, 3, 6, 9)
    assert timing.samples_us == tuple(float(each) for each in range(1, 12))


@given(st.integers(1, 17), st.integers(0, 3))
def test_every_slot_and_every_neighbour_equally_often(count, rounds):
    cycles = range(2 * count * rounds, 2 * count * (rounds + 1))
    orders = [order_of_cycle(count, cycle) for cycle in cycles]
    assert all(sorted(order) == list(range(count)) for order in orders)
    slots = Counter((slot, contender) for order in orders for slot, contender in enumerate(order))
    assert set(slots.values()) == {2}
    neighbours = Counter(pair for order in orders for pair in pairwise(order))
    assert len(neighbours) == count * (count - 1)
    assert set(neighbours.values()) <= {2}
    assert orders[1::2] == [order[::-1] for order in orders[::2]]
