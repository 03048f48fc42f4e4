"""Plans, tables and the gate on a simulated device; B58 of the field reports is here."""

from __future__ import annotations

import json

import pytest
from simulated_device import PROFILE, SimulatedDevice, benchmark, write_profile, write_tuned

from attnctl.bench.exit import exit_code, worst
from attnctl.bench.gate import GateVerdict
from attnctl.bench.plan import check_against
from attnctl.errors import ExitCode, UsageError
from attnctl.report import _bench as report
from attnctl.tune.decide import Verdict

PASS, FAIL, INCONCLUSIVE = GateVerdict.PASS, GateVerdict.FAIL, GateVerdict.INCONCLUSIVE


@pytest.fixture
def profile(tmp_path):
    """Its own config has blocks of 16; the kernel's default is 64."""
    return write_profile(tmp_path)


@pytest.fixture
def tuned(profile):
    """Tuned to blocks of 128, which took 25.5 us then."""
    write_tuned(profile, 25.5)
    return profile


def verdicts(match):
    return {each.against: each.verdict for each in match.gate}


def test_the_tuned_config_is_compared_with_default_and_incumbent(tuned):
    match, said = benchmark(tuned, SimulatedDevice({128: 80, 64: 100, 16: 160}))
    head, default, incumbent = match.rows
    assert [row.name for row in match.rows] == ["tuned", "default", "incumbent"]
    assert [row.candidate.config["block_q"] for row in match.rows] == [128, 64, 16]
    assert head.comparison is None
    assert head.latency.median_us == pytest.approx(80, rel=0.003)
    assert head.latency.p20_us < head.latency.median_us < head.latency.p80_us
    assert head.latency.samples == 150
    assert head.tflops == pytest.approx(25, rel=0.003)
    assert default.comparison.ratio == pytest.approx(0.8, rel=0.003)
    assert incumbent.comparison.ratio == pytest.approx(0.5, rel=0.003)
    assert default.comparison.verdict is incumbent.comparison.verdict is Verdict.BETTER
    assert match.notes == match.gate == ()
    assert exit_code(match) is ExitCode.OK
    assert said[0] == "process 1 of 3: 3 configs, 50 cycles"


def test_without_a_tuned_entry_the_profiles_own_config_runs(profile):
    match, _ = benchmark(profile, SimulatedDevice({64: 100, 16: 160}))
    assert [(row.name, row.note) for row in match.rows] == [
        ("profile", ""),
        ("default", ""),
        ("incumbent", "the same config as profile"),
    ]
    assert match.rows[1].comparison.verdict is Verdict.WORSE
    assert match.notes[0].startswith("nothing is tuned for simulated (")
    assert match.notes[0].endswith("demo.yaml): the profile's own config is measured")


def test_a_stale_entry_is_measured_and_its_time_is_not_compared(profile):
    write_tuned(profile, 25.5, versions={"flash-attn-4": "4.0.0b1"})
    device = SimulatedDevice({128: 80, 64: 100, 16: 160}, versions={"flash-attn-4": "4.0.0b36"})
    match, _ = benchmark(profile, device, against=(), band=0.05)
    assert match.rows[0].name == "tuned"
    assert "is stale: versions.flash-attn-4 4.0.0b1 then, 4.0.0b36 now" in match.notes[0]
    assert verdicts(match) == {"nothing": INCONCLUSIVE}


def test_a_tuned_config_that_breaks_a_rule_by_now_is_not_run(profile):
    write_tuned(profile, 25.5, config={"block_q": 100, "block_kv": 128}, sparse_block=(128, 128))
    device = SimulatedDevice({64: 100, 16: 160})
    match, _ = benchmark(profile, device)
    head = match.rows[0]
    assert (head.name, head.failed, head.latency) == ("tuned", True, None)
    assert head.note.startswith("breaks ")
    assert device.asked == []
    assert exit_code(match) is ExitCode.FINDINGS


def test_an_incumbent_that_breaks_a_rule_is_no_obstacle_to_the_tuned_config(tmp_path):
    profile = write_profile(tmp_path, PROFILE.replace("block_q: 16", "block_q: -16"))
    write_tuned(profile, 25.5)
    match, _ = benchmark(profile, SimulatedDevice({128: 80, 64: 100}))
    assert [(row.name, row.failed) for row in match.rows] == [
        ("tuned", False),
        ("default", False),
        ("incumbent", False),
    ]
    assert match.rows[2].note.startswith("breaks BLOCKS-")


def test_a_wrong_result_of_the_config_on_disk_is_a_finding(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: "row 7 is wrong", 64: 100, 16: 160}), band=0.05)
    assert (match.rows[0].failed, match.rows[0].note) == (True, "wrong_result: row 7 is wrong")
    assert match.rows[1].latency is not None
    assert match.gate == ()
    assert exit_code(match) is ExitCode.FINDINGS


def test_a_profile_of_which_nothing_runs_is_a_finding(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: "nan", 64: "nan", 16: "nan"}), band=0.05)
    assert [(row.failed, row.note, row.latency) for row in match.rows] == [(True, "wrong_result: nan", None)] * 3
    assert exit_code(match) is ExitCode.FINDINGS


def test_a_baseline_that_fails_is_shown_and_not_judged(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: 80, 64: "nan", 16: 160}), band=0.05)
    assert [row.failed for row in match.rows] == [False, True, False]
    assert verdicts(match) == {"incumbent": PASS}
    assert exit_code(match) is ExitCode.OK


def test_a_true_slow_down_of_20_percent_with_1_percent_of_noise_fails(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: 120, 64: 100, 16: 160}, noise=0.01), band=0.10)
    assert verdicts(match) == {"default": FAIL, "incumbent": PASS}
    assert exit_code(match) is ExitCode.FINDINGS


def test_noise_above_the_band_is_inconclusive_after_one_repeat_with_twice_the_cycles(tuned):
    device = SimulatedDevice({128: 100, 64: 100, 16: 100}, noise=0.13)
    match, said = benchmark(tuned, device, band=0.02)
    assert verdicts(match) == {"default": INCONCLUSIVE, "incumbent": INCONCLUSIVE}
    assert match.gate[0].reason.startswith("this machine's noise of ")
    assert device.asked == [50, 50, 50, 100, 100, 100]
    assert (match.processes, match.cycles) == (6, 450)
    assert "the gate does not pass: three more processes, with twice the cycles" in said
    assert exit_code(match) is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize("seed", range(12))
def test_levels_13_percent_apart_from_process_to_process_never_fail_a_band_of_10_percent(tuned, seed):
    device = SimulatedDevice({128: 100, 64: 100, 16: 100}, swings=0.13, seed=seed)
    match, _ = benchmark(tuned, device, band=0.10)
    assert FAIL not in verdicts(match).values()


def test_a_regression_must_be_seen_twice(tuned):
    device = SimulatedDevice({128: 120, 64: 100, 16: 160})
    match, _ = benchmark(tuned, device, band=0.10)
    assert device.asked == [50, 50, 50, 100, 100, 100]
    assert verdicts(match)["default"] is FAIL

    class Once(SimulatedDevice):
        """Slower in its first three processes only."""

        def finals(self, contenders, cycles):
            self._times_us = {128: 100 if len(self.asked) >= 3 else 120, 64: 100, 16: 160}
            return super().finals(contenders, cycles)

    match, _ = benchmark(tuned, Once({}), band=0.10)
    assert verdicts(match)["default"] is INCONCLUSIVE


def test_a_repeat_may_settle_what_few_cycles_left_open(tuned):
    device = SimulatedDevice({128: 80, 64: 100, 16: 160})
    match, _ = benchmark(tuned, device, band=0.05, cycles=2)
    assert device.asked == [2, 2, 2, 4, 4, 4]
    assert verdicts(match) == {"default": PASS, "incumbent": PASS}


def test_a_machine_that_became_slower_as_a_whole_is_no_regression(profile):
    write_tuned(profile, 22.5)
    match, _ = benchmark(profile, SimulatedDevice({128: 25.5, 64: 25.5, 16: 25.5}), band=0.05)
    assert verdicts(match) == {"default": PASS, "incumbent": PASS}
    (note,) = match.notes
    assert note.startswith("today's time is 1.13")
    assert note.endswith("goes by the configs that ran beside it, because a machine can change as a whole")


@pytest.mark.parametrize(("now", "verdict"), [(25.6, PASS), (20, PASS), (31, FAIL), (26.78, INCONCLUSIVE)])
def test_with_nothing_beside_it_the_stored_time_is_the_baseline(tuned, now, verdict):
    match, _ = benchmark(tuned, SimulatedDevice({128: now}), against=(), band=0.05)
    assert verdicts(match) == {"the stored time": verdict}


def test_a_stored_time_of_another_cache_policy_is_no_baseline(profile):
    write_tuned(profile, 25.5, cache="warm")
    match, _ = benchmark(profile, SimulatedDevice({128: 31}), against=(), band=0.05)
    assert match.notes == ("the stored time is of a warm cache: not compared with a cold one",)
    assert verdicts(match) == {"nothing": INCONCLUSIVE}


def test_a_stored_time_of_another_device_is_no_baseline(profile):
    write_tuned(profile, 25.5, device="another")
    device = SimulatedDevice({16: 31})
    match, _ = benchmark(profile, device, against=("incumbent",), band=0.05)
    assert device.asked == [50, 50, 50]
    assert verdicts(match) == {"nothing": INCONCLUSIVE}
    assert match.gate[0].reason == (
        "there is nothing to compare with: run `attnctl tune` first, or name another baseline with --against"
    )
    assert exit_code(match) is ExitCode.INCONCLUSIVE


def test_a_throttled_machine_is_unstable(tuned):
    device = SimulatedDevice({128: 80, 64: 100, 16: 160}, throttle=("thermal",))
    match, _ = benchmark(tuned, device)
    assert (match.unstable, match.dropped) == (True, 1)
    assert exit_code(match) is ExitCode.INCONCLUSIVE
    assert match.rows[0].latency is None
    gated, _ = benchmark(tuned, device, band=0.05)
    assert set(verdicts(gated).values()) == {INCONCLUSIVE}


def test_a_family_that_cannot_run_here_is_named(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: 80}), against=("fa4", "ranker_fa3"))
    rows = {row.name: row for row in match.rows}
    assert rows["fa4"].note == "does not run on a machine without a GPU"
    assert exit_code(match) is ExitCode.OK


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blocks", "--against blocks: that is the profile's own family"),
        ("defualt", "--against defualt: no such baseline or family"),
    ],
)
def test_names_that_are_no_baseline_are_refused(name, message):
    with pytest.raises(UsageError) as raised:
        check_against([name], "blocks")
    assert raised.value.message == message


def test_several_profiles_exit_with_the_worst_code():
    assert worst([]) is ExitCode.OK
    assert worst([ExitCode.OK, ExitCode.INCONCLUSIVE]) is ExitCode.INCONCLUSIVE
    assert worst([ExitCode.INCONCLUSIVE, ExitCode.UNAVAILABLE, ExitCode.OK]) is ExitCode.UNAVAILABLE
    assert worst([ExitCode.UNAVAILABLE, ExitCode.FINDINGS]) is ExitCode.FINDINGS


def test_the_table_names_every_config_and_how_to_read_the_ratio(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: 80, 64: 100, 16: "nan"}, noise=0.001), band=0.05)
    lines = list(report.text(match))
    assert (
        lines[0]
        == f"{tuned}: causal-b2-s1024-h4-d64-float32 forward on simulated, cold cache, 50.0% of the pairs visible"
    )
    assert lines[2].split("  ")[0] == "config"
    assert [line.split()[0] for line in lines[3:5]] == ["tuned", "default"]
    assert lines[4].endswith("better")
    assert "incumbent: wrong_result: nan" in lines
    assert "tuned = block_q=128 block_kv=128 sparse_block=128x128" in lines
    assert any(line.startswith("ratio = time of tuned / time of the row. 150 cycles in 3 processes,") for line in lines)
    assert lines[-1].startswith("gate against default: pass: ratio 0.8")


def test_json_has_no_number_that_json_does_not_know(tuned):
    match, _ = benchmark(tuned, SimulatedDevice({128: 80, 64: 100, 16: 160}), cycles=1)
    document = json.loads(json.dumps(report.as_json([match]), allow_nan=False))
    assert document["version"] == 1
    default = document["matches"][0]["rows"][1]
    assert default["comparison"]["verdict"] == "inconclusive"
    assert (default["comparison"]["low"], default["comparison"]["high"]) == (0, None)


def test_github_annotates_failures_at_the_gates_line(tmp_path):
    profile = write_profile(tmp_path, PROFILE + "gate: {max_regression: 10%}\n")
    write_tuned(profile, 25.5)
    match, _ = benchmark(profile, SimulatedDevice({128: 120, 64: 100, 16: 160}), band=0.10)
    (line,) = report.commands(match, (7, 8))
    assert line.startswith(f"::error file={profile},line=7,col=8,title=GATE regression::causal-b2-s1024-h4-d64-float32")
    assert "tuned against default: ratio 1.2" in line
    assert line.endswith("exceeds the band of 10.0%25.")
