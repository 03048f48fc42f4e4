from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_finals import AA, Noise, simulate

from attnctl.bench.gate import GateVerdict, explain, gate, parse_band
from attnctl.bench.medians import compare_alternating, compare_stored, process_medians
from attnctl.tune.decide import Comparison, Verdict, compare


def measured(ratio, noise, *, seed=0, **options):
    processes = simulate(np.random.default_rng(seed), {AA[0]: 100, "head": 100 * ratio}, noise, **options)
    return compare(processes, "head", AA[0], AA)


@pytest.mark.parametrize(("text", "band"), [("5%", 0.05), ("2.5%", 0.025), ("0.1%", 0.001), ("150%", 1.5)])
def test_a_band_is_a_percentage(text, band):
    assert parse_band(text) == pytest.approx(band)


@pytest.mark.parametrize(
    "text",
    ["", "5", "0.05", "0%", "0.0%", "10 %", "-5%", "+5%", "5%%", "5e0%", "five%", " 5%", "nan%", "5  %", "5%\n", ".5%"],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a percentage above 0%, like 5% or 2\.5%"):
        parse_band(text)


def test_swings_of_13_percent_from_run_to_run_are_inconclusive_at_a_band_of_10_percent():
    verdicts = [gate(measured(1, Noise(bimodal=0.13, sample=0.02), seed=seed), 0.10) for seed in range(20)]
    swinging = [seed for seed in range(20) if measured(1, Noise(bimodal=0.13, sample=0.02), seed=seed).floor > 0.10]
    assert len(swinging) >= 10
    assert GateVerdict.FAIL not in verdicts
    assert all(verdicts[seed] is GateVerdict.INCONCLUSIVE for seed in swinging)


def test_samples_with_13_percent_of_noise_are_inconclusive_at_a_band_of_3_percent():
    result = measured(1, Noise(sample=0.13))
    assert gate(result, 0.03) is GateVerdict.INCONCLUSIVE
    assert explain(result, 0.03).startswith("this machine's noise of ")
    assert explain(result, 0.03).endswith(" is larger than the band of 3.0%")


def test_a_true_20_percent_slow_down_with_1_percent_of_noise_fails():
    result = measured(1.2, Noise(sample=0.01))
    assert gate(result, 0.10) is GateVerdict.FAIL
    assert explain(result, 0.10).endswith("exceeds the band of 10.0%")


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.03])
def test_what_is_within_the_band_passes(ratio):
    result = measured(ratio, Noise(sample=0.01))
    assert gate(result, 0.05) is GateVerdict.PASS
    assert explain(result, 0.05).endswith("is within the band of 5.0%")


def test_a_regression_of_exactly_the_band_is_neither():
    result = measured(1.05, Noise(sample=0.01), seed=1)
    assert gate(result, 0.05) is GateVerdict.INCONCLUSIVE
    assert "neither clears nor exceeds" in explain(result, 0.05)


def test_an_unstable_machine_neither_passes_nor_fails():
    result = dataclasses.replace(measured(1.2, Noise()), dropped=0.21)
    assert gate(result, 0.05) is GateVerdict.INCONCLUSIVE
    assert explain(result, 0.05) == "the machine is unstable: 21% of the cycles were dropped"


def test_too_few_cycles_neither_pass_nor_fail():
    for ratio in (0.5, 1, 2):
        assert gate(measured(ratio, Noise(), cycles=3), 0.05) is GateVerdict.INCONCLUSIVE


@given(
    low=st.floats(0.5, 2),
    widths=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)),
    floor=st.floats(0, 0.2),
    band=st.floats(0.001, 0.5),
    verdict=st.sampled_from(Verdict),
)
def test_a_wider_band_never_turns_a_pass_into_anything_else(low, widths, floor, band, verdict):
    result = Comparison(low + widths[0], low, low + sum(widths), verdict, floor, max(0.01, 2 * floor), 0)
    if gate(result, band) is GateVerdict.PASS:
        assert gate(result, 1.5 * band) is GateVerdict.PASS
    if gate(result, 1.5 * band) is GateVerdict.FAIL:
        assert gate(result, band) is GateVerdict.FAIL


def test_the_median_of_each_process_with_enough_good_cycles_counts():
    processes = simulate(np.random.default_rng(1), {AA[0]: 100}, Noise(drift=0))
    processes[1] = [cycle.model_copy(update={"throttle": ("thermal",)}) for cycle in processes[1]]
    assert process_medians(processes, AA[0], None) == pytest.approx([100, 100], rel=0.003)
    assert process_medians(processes, "absent", None) == []


def test_families_are_compared_by_the_medians_of_alternating_processes():
    found = compare_alternating([80.0, 82.0, 81.0], [100.0, 102.5, 101.0], floor=0.003)
    assert found.ratio == pytest.approx(0.8007, abs=0.0005)
    assert found.verdict is Verdict.BETTER
    assert found.low < 0.8 < found.high


def test_three_scattered_processes_conclude_little():
    found = compare_alternating([80.0, 95.0, 90.0], [100.0, 100.0, 100.0], floor=0.003)
    assert found.ratio < 0.9
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("medians", [[], [80.0]])
def test_one_process_of_each_family_concludes_nothing(medians):
    found = compare_alternating(medians, [100.0, 100.0, 100.0], floor=0.003)
    assert (found.verdict, found.low, found.high) == (Verdict.INCONCLUSIVE, 0, float("inf"))


def test_a_stored_time_counts_as_one_more_process():
    now = [25.4, 25.5, 25.6]
    alone, stored = compare_alternating(now, [22.5] * 3, 0.0), compare_stored(now, 22.5, 0.0)
    assert stored.ratio == pytest.approx(25.5 / 22.5, rel=1e-4)
    assert np.log(stored.high / stored.ratio) == pytest.approx(2 * np.log(alone.high / alone.ratio))
    assert gate(stored, 0.05) is GateVerdict.FAIL
    assert gate(compare_stored([22.0, 25.5, 26.0], 22.5, 0.0), 0.05) is GateVerdict.INCONCLUSIVE
