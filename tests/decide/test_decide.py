from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_finals import AA, Noise, simulate

from attnctl.gpu.protocol import Cycle
from attnctl.tune.decide import Verdict, compare, decide

NOISES = {
    "process drift": Noise(),
    "slot order": Noise(slot=0.004),
    "heavy tails": Noise(sample=0.01, tails=True),
    "autocorrelation": Noise(memory=0.8),
    "all of it": Noise(sample=0.01, slot=0.004, tails=True, memory=0.6),
    "large": Noise(sample=0.13),
}


def rank(*names):
    return {name: place for place, name in enumerate(names)}


def choose(processes, *names, **options):
    options = {"default": None, "resources": rank(AA[0], *names)} | options
    return decide(processes, incumbent=AA[0], aa=AA, **options)


def test_at_most_2_of_200_comparisons_of_a_kernel_with_itself_find_a_difference():
    rng = np.random.default_rng(20)
    noises = itertools.islice(itertools.cycle(NOISES.values()), 200)
    verdicts = [compare(simulate(rng, {AA[0]: 470, "twin": 470}, noise), "twin", AA[0], AA).verdict for noise in noises]
    assert sum(each in (Verdict.BETTER, Verdict.WORSE) for each in verdicts) <= 2


@pytest.mark.parametrize("name", ["process drift", "slot order", "heavy tails", "autocorrelation", "all of it"])
def test_a_true_difference_of_3_percent_is_found(name):
    rng = np.random.default_rng(3)
    decisions = [choose(simulate(rng, {AA[0]: 100, "faster": 97}, NOISES[name]), "faster") for _ in range(10)]
    assert sum(each.winner == "faster" for each in decisions) >= 9
    assert all(abs(each.vs_incumbent["faster"].ratio - 0.97) < 0.006 for each in decisions)


def test_the_interval_holds_the_true_ratio_as_often_as_it_says():
    rng = np.random.default_rng(21)
    results = [
        compare(simulate(rng, {AA[0]: 100, "other": 105}, NOISES["all of it"]), "other", AA[0], AA) for _ in range(60)
    ]
    assert 53 <= sum(each.low <= 1.05 <= each.high for each in results) < 60


def test_a_slow_candidate_is_worse_and_loses():
    decision = choose(simulate(np.random.default_rng(0), {AA[0]: 100, "slower": 103}), "slower")
    assert decision.vs_incumbent["slower"].verdict is Verdict.WORSE
    assert (decision.winner, decision.tie, decision.unstable) == (AA[0], False, False)
    assert decision.reason.startswith("incumbent is the fastest; slower, the next, is 1.03")


@pytest.mark.parametrize("level", [0.03, -0.03])
def test_13_percent_of_noise_is_inconclusive_and_keeps_the_incumbent(level):
    processes = simulate(np.random.default_rng(1), {AA[0]: 100, "other": 100 * (1 + level)}, NOISES["large"])
    decision = choose(processes, "other")
    assert decision.vs_incumbent["other"].verdict is Verdict.INCONCLUSIVE
    assert (decision.winner, decision.tie) == (AA[0], False)
    assert "inconclusive" in decision.reason


def test_noise_never_makes_two_configs_the_same():
    rng = np.random.default_rng(2)
    for _ in range(20):
        result = compare(simulate(rng, {AA[0]: 100, "other": 100}, NOISES["large"]), "other", AA[0], AA)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.margin > 0.05


def test_a_difference_below_the_margin_is_a_tie_that_keeps_the_incumbent():
    decision = choose(simulate(np.random.default_rng(4), {AA[0]: 100, "other": 99.6}), "other")
    assert decision.vs_incumbent["other"].verdict is Verdict.SAME
    assert (decision.winner, decision.tie) == (AA[0], True)
    assert decision.reason.startswith("tie: nothing is better than incumbent by more than the margin")


def test_the_direction_must_be_the_same_in_every_process():
    rng = np.random.default_rng(5)
    fast = simulate(rng, {AA[0]: 100, "other": 80}, processes=2)
    slow = simulate(rng, {AA[0]: 100, "other": 102}, processes=1)
    result = compare([*fast, *slow], "other", AA[0], AA)
    assert result.ratio < 0.85
    assert result.verdict is Verdict.INCONCLUSIVE


def test_contenders_tied_for_best_are_told_apart_by_resources_then_name():
    times = {AA[0]: 100, "fastest": 90.0, "lean": 90.2, "fat": 90.1, "second": 93}
    processes = simulate(np.random.default_rng(6), times)
    costs = {AA[0]: 1, "fastest": 9, "lean": 2, "fat": 10, "second": 0}
    decision = choose(processes, resources=costs)
    assert decision.winner == "lean"
    assert decision.reason.endswith("; tied with fastest, and takes fewer resources")
    assert choose(processes, resources=dict.fromkeys(costs, 0)).winner == "fastest"
    assert choose(processes, resources=dict.fromkeys(costs, 0) | {"fastest": 1}).winner == "fat"


def test_a_contender_that_failed_in_one_process_is_out():
    processes = simulate(np.random.default_rng(7), {AA[0]: 100, "flaky": 50, "steady": 90})
    processes[2] = [
        Cycle(samples_us={name: value for name, value in cycle.samples_us.items() if name != "flaky"})
        for cycle in processes[2]
    ]
    decision = choose(processes, "flaky", "steady")
    assert decision.winner == "steady"
    assert set(decision.vs_incumbent) == {AA[0], "steady"}


def test_comparisons_with_the_default_come_along():
    processes = simulate(np.random.default_rng(8), {AA[0]: 100, "default": 110, "new": 90})
    decision = choose(processes, "default", "new", default="default")
    assert decision.vs_default["new"].ratio == pytest.approx(90 / 110, abs=0.005)
    assert decision.vs_default["default"].ratio == 1
    assert choose(processes, "default", "new", default=AA[0]).vs_default == decision.vs_incumbent
    assert choose(processes, "default", "new").vs_default == {}


def worsen(processes, share, **state):
    """Give the first ``share`` of each process's cycles a ``state``, and ten times the incumbent's time."""
    changed = []
    for cycles in processes:
        bad = round(share * len(cycles))
        slow = [
            Cycle(samples_us=cycle.samples_us | {AA[0]: 10 * cycle.samples_us[AA[0]]}, **state)
            for cycle in cycles[:bad]
        ]
        changed.append([*slow, *cycles[bad:]])
    return changed


BAD_STATES = [{"throttle": ("thermal",)}, {"throttle": ("power_cap", "power_brake")}, {"sm_clock_mhz": 1484}]


@pytest.mark.parametrize("state", BAD_STATES, ids=str)
def test_bad_cycles_are_dropped_whole(state):
    clean = simulate(np.random.default_rng(9), {AA[0]: 100, "other": 97})
    result = compare(worsen(clean, 0.2, **state), "other", AA[0], AA, default_clock_mhz=1980)
    assert result.dropped == pytest.approx(0.2)
    assert result.ratio == pytest.approx(0.97, abs=0.003)
    assert result.verdict is Verdict.BETTER


@pytest.mark.parametrize("state", BAD_STATES, ids=str)
def test_more_than_a_fifth_of_bad_cycles_is_unstable(state):
    clean = simulate(np.random.default_rng(9), {AA[0]: 100, "other": 90})
    decision = choose(worsen(clean, 0.22, **state), "other", default_clock_mhz=1980)
    assert decision.unstable
    assert decision.winner == AA[0]
    assert decision.reason.startswith("the machine is unstable: 22% of the cycles were dropped")
    assert decision.vs_incumbent["other"].verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("state", [{"throttle": ("power_cap",)}, {"sm_clock_mhz": 1485}], ids=str)
def test_a_power_cap_and_a_clock_at_the_limit_are_kept(state):
    clean = simulate(np.random.default_rng(9), {AA[0]: 100, "other": 90})
    assert compare(worsen(clean, 1.0, **state), "other", AA[0], AA, default_clock_mhz=1980).dropped == 0


def test_a_device_that_tells_no_clock_keeps_its_cycles():
    clean = simulate(np.random.default_rng(9), {AA[0]: 100, "other": 90})
    assert compare(clean, "other", AA[0], AA, default_clock_mhz=1980).verdict is Verdict.BETTER


@pytest.mark.parametrize("processes", [[], [[]], [[], [], []]], ids=str)
def test_no_cycles_at_all_conclude_nothing(processes):
    assert compare(processes, "other", AA[0], AA).verdict is Verdict.INCONCLUSIVE
    decision = choose(processes, "other")
    assert (decision.winner, decision.unstable) == (AA[0], True)


def test_a_handful_of_cycles_concludes_nothing():
    few = simulate(np.random.default_rng(10), {AA[0]: 100, "other": 50}, cycles=3)
    enough = simulate(np.random.default_rng(10), {AA[0]: 100, "other": 50}, cycles=4)
    result = compare(few, "other", AA[0], AA)
    assert (result.verdict, result.low, result.high) == (Verdict.INCONCLUSIVE, 0, float("inf"))
    assert compare(enough, "other", AA[0], AA).verdict is Verdict.BETTER


def test_a_missing_second_slot_concludes_nothing():
    processes = simulate(np.random.default_rng(11), {AA[0]: 100, "other": 50})
    assert compare(processes, "other", AA[0], (AA[0], "absent")).verdict is Verdict.INCONCLUSIVE


def test_the_same_finals_give_the_same_decision():
    processes = simulate(np.random.default_rng(12), {AA[0]: 100, "a": 97, "b": 98}, NOISES["all of it"])
    assert choose(processes, "a", "b") == choose(processes, "a", "b")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ratio=st.floats(0.8, 1.25),
    noise=st.sampled_from(list(NOISES.values())),
    cycles=st.integers(4, 40),
)
def test_swapping_the_sides_inverts_the_ratio_and_mirrors_the_verdict(seed, ratio, noise, cycles):
    processes = simulate(np.random.default_rng(seed), {AA[0]: 100, "other": 100 * ratio}, noise, cycles=cycles)
    there = compare(processes, "other", AA[0], AA)
    back = compare(processes, AA[0], "other", AA)
    mirrored = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert back.verdict is mirrored.get(there.verdict, there.verdict)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))
    assert (back.floor, back.margin, back.dropped) == (there.floor, there.margin, there.dropped)
    assert there.low <= there.ratio <= there.high


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e6), noise=st.sampled_from(list(NOISES.values())))
def test_the_unit_of_time_does_not_matter(seed, scale, noise):
    processes = simulate(np.random.default_rng(seed), {AA[0]: 100, "other": 98}, noise, cycles=20)
    scaled = [
        [Cycle(samples_us={name: scale * value for name, value in cycle.samples_us.items()}) for cycle in cycles]
        for cycles in processes
    ]
    before, after = (compare(each, "other", AA[0], AA) for each in (processes, scaled))
    assert after.verdict is before.verdict
    assert (after.ratio, after.low, after.high) == pytest.approx((before.ratio, before.low, before.high))


def test_an_incumbent_that_failed_in_the_finals_is_named():
    processes = simulate(np.random.default_rng(14), {AA[0]: 100, "other": 50})
    gone = [[Cycle(samples_us={"other": cycle.samples_us["other"]}) for cycle in cycles] for cycles in processes]
    assert choose(gone, "other").reason == "incumbent failed in the finals: there is nothing to compare with"
