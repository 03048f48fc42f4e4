"""Every way in which a candidate goes wrong ends as its outcome, and the next candidate is measured as ever."""

import re
from pathlib import Path

import pytest
from processes import gone, group_members
from worker_tasks import BLOCKS, candidate, task

from attnctl_kernels.contract import Mask, Outcome

TASKS = {
    "causal": task(),
    "blocks": task(mask=BLOCKS),
    "backward": task("backward"),
    "backward blocks": task("backward", mask=BLOCKS),
    "window": task(seqlen_q=64, seqlen_k=640, mask=Mask(pattern="sliding_window", window=32)),
    "dense": task(mask=Mask(), seqlen_q=254, seqlen_k=254, dtype="bfloat16"),
    "sparse": task(seqlen_q=128, seqlen_k=128, mask=Mask(pattern="sliding_window", window=8)),
    "small": task(seqlen_q=32, seqlen_k=32),
}
BY_BLOCK = {"sparse_block": (64, 64)}

WRONG = [
    ("causal", "nan_fast", {}, r"out: 16384 of 16384 elements are not finite; the first is nan at \(0, 0, 0, 0\)"),
    ("causal", "ignores_sparsity", {}, "sparsity ignored: closer to dense attention"),
    ("causal", "writes_first_half", {}, r"out: 8192 of 16384 elements are not finite; the first is nan at \(0, 128, "),
    ("causal", "writes_second_half", {}, r"out: 8192 of 16384 elements are not finite; the first is nan at \(0, 0, "),
    ("causal", "accumulates", {}, "out: 16384 of 16384 elements are not finite"),
    ("causal", "accumulates_inside", {}, "result changes: out of run 2 differs from the first run's"),
    ("causal", "writes_inputs", {}, "writes its inputs: k changed"),
    ("causal", "scribbles", {}, "writes into memory that it was not given"),
    ("causal", "wrong_row", {}, r"out: RMS error .* worst row .* at \(0, 255, 1\)"),
    ("causal", "wrong_shape", {}, r"out has shape \(1, 2, 256, 32\) instead of \(1, 256, 2, 32\)"),
    ("small", "flaky", {}, "result changes: out of (a|the last) timed run differs"),
    ("dense", "tail_zero_weight", {}, "on strongly negative scores"),
    ("blocks", "reads_unseen", BY_BLOCK, r"reads keys that no query may see \(64 of them hold NaN\)"),
    ("blocks", "ignores_sparsity", BY_BLOCK, "sparsity ignored"),
    (
        "blocks",
        "nan_blind_rows",
        BY_BLOCK,
        r"out: 4096 of 16384 elements are not finite; the first is nan at \(0, 64, ",
    ),
    ("backward blocks", "reads_unseen", BY_BLOCK, r"reads keys that no query may see \(64 of them hold NaN\)"),
    ("window", "reads_unseen", {}, r"reads keys that no query may see \(290 of them hold NaN\)"),
    ("backward", "nan_fast", {}, "dq: 16384 of 16384 elements are not finite"),
    ("backward", "ignores_sparsity", {}, "sparsity ignored: closer to dense attention .*; dq: "),
    ("backward", "writes_first_half", {}, "dq: 8192 of 16384 elements are not finite"),
    ("backward", "writes_inputs", {}, "writes its inputs: k changed"),
]
RAISES = [
    ("illegal", Outcome.LAUNCH_ERROR, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("memory_error", Outcome.OUT_OF_RESOURCES, "can't allocate memory"),
    ("launch_refused", Outcome.OUT_OF_RESOURCES, "232449 bytes of shared memory, 232448 are available"),
    ("bind_error", Outcome.COMPILE_ERROR, "ValueError: tile 7 does not divide 128"),
    ("leaks", Outcome.LAUNCH_ERROR, "Refusal: refused, and holding on to it"),
]
KILLS = [
    ("orphan", Outcome.WORKER_DIED, "exited with status 3"),
    (
        "oom",
        Outcome.OUT_OF_RESOURCES,
        r"out of memory in first_call: the process held \d\.\d GiB, the limit is 0.8 GiB",
    ),
]


@pytest.fixture
def on(measurer):
    """The measurer, prepared for a task by name; tests come sorted by task."""

    def prepare(name):
        if getattr(measurer, "prepared_for", None) != name:
            measurer.prepare(TASKS[name])
            measurer.prepared_for = name
        return measurer

    return prepare


@pytest.mark.parametrize("name", TASKS)
def test_right_candidate_is_timed(on, name):
    result = on(name).measure(candidate(**BY_BLOCK if "blocks" in name else {}))
    assert result.outcome is Outcome.OK, result.reason
    assert result.timing.count == len(result.timing.samples_us) >= 3
    assert result.timing.min_us <= result.timing.p20_us <= result.timing.median_us <= result.timing.p80_us
    assert set(result.check.error) == ({"dq", "dk", "dv"} if "backward" in name else {"out", "lse"})
    assert result.check.checked_fraction == 1.0
    assert set(result.seconds) == {"compile", "first_call", "check", "timing"}


@pytest.mark.parametrize(("name", "fault", "how", "reason"), sorted(WRONG, key=str))
def test_wrong_result_is_named(on, name, fault, how, reason):
    result = on(name).measure(candidate(fault, **how))
    assert result.outcome is Outcome.WRONG_RESULT
    assert re.search(reason, result.reason), result.reason
    assert result.timing is None


def test_writing_the_inputs_harms_nobody_else(on):
    measurer = on("causal")
    assert measurer.measure(candidate("writes_inputs")).outcome is Outcome.WRONG_RESULT
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_halves_do_not_repair_each_other(on):
    measurer = on("causal")
    faults = ["writes_first_half", "writes_second_half", "writes_first_half"]
    assert [measurer.measure(candidate(fault)).outcome for fault in faults] == [Outcome.WRONG_RESULT] * 3


def test_what_a_kernel_prints_is_not_a_reply(on):
    result = on("causal").measure(candidate("prints"))
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.timing is not None


@pytest.mark.parametrize(("fault", "outcome", "reason"), RAISES)
def test_exception_becomes_an_outcome(on, fault, outcome, reason):
    measurer = on("causal")
    pid = measurer.worker_pid
    result = measurer.measure(candidate(fault))
    assert (result.outcome, result.timing) == (outcome, None)
    assert reason in result.reason
    assert "\n" not in result.reason
    assert "Traceback" in result.detail
    if fault == "illegal":  # an error of the driver may have left anything behind
        assert measurer.worker_pid is None
        assert measurer.measure(candidate()).outcome is Outcome.OK
    else:
        assert measurer.worker_pid == pid


@pytest.mark.parametrize(("fault", "outcome", "reason"), KILLS)
def test_lost_worker_costs_one_candidate(on, fault, outcome, reason):
    measurer = on("small")
    result = measurer.measure(candidate(fault))
    assert result.outcome is outcome
    assert re.fullmatch(reason, result.reason), result.reason
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_bad_candidates_anywhere_in_a_sweep(on):
    """B41: first, in the middle and last, and the fastest good one still wins."""
    measurer = on("small")
    group = measurer.worker_pid
    hung = measurer.measure(candidate("hang"))
    assert (hung.outcome, hung.reason) == (Outcome.TIMEOUT, "deadline of 4 s passed in first_call")
    assert hung.detail == "about to hang"
    assert all(gone(pid) for pid in group_members(group))  # the hanging kernel had started another process
    sweep = [candidate(delay_us=20_000), candidate("illegal"), candidate(delay_us=2_000), candidate("abort")]
    results = [measurer.measure(each) for each in sweep]
    assert [str(each.outcome) for each in results] == ["ok", "launch_error", "ok", "worker_died"]
    assert results[2].timing.median_us < results[0].timing.median_us
    assert results[3].reason == "killed by SIGABRT"
    assert "Fatal Python error: Aborted" in results[3].detail
    assert "in abort" in results[3].detail


def test_probes_find_what_the_task_hides(on):
    """No key is out of sight under this mask, so only a probe can show that unseen keys are read."""
    measurer = on("causal")
    assert measurer.measure(candidate("reads_unseen", **BY_BLOCK)).outcome is Outcome.OK
    result = measurer.measure(candidate("reads_unseen", **BY_BLOCK), probes=True)
    assert result.outcome is Outcome.WRONG_RESULT
    assert result.reason.startswith("probe block lists (blocks-b1-s192-h2kv1-d32-float32): reads keys that no query")


def test_right_candidate_passes_probes_and_second_seed(on):
    result = on("causal").measure(candidate(**BY_BLOCK), probes=True, second_seed=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert re.fullmatch(r"\d+ runs gave the same result", result.check.notes[0])
    assert not [note for note in result.check.notes if "not run" in note]


def test_slow_candidate_is_given_up(on):
    measurer = on("small")
    result = measurer.measure(candidate(delay_us=5_000), best_us=1_000.0)
    assert (result.outcome, result.timing.gave_up) == (Outcome.OK, True)
    assert result.timing.count <= 5
    assert not measurer.measure(candidate(delay_us=5_000)).timing.gave_up


def test_twenty_failures_leave_no_memory_behind(on):
    """B43, over the process border: 200 MB would have stayed."""
    measurer = on("small")
    measurer.measure(candidate("leaks"))
    before = _resident_bytes(measurer.worker_pid)
    for _ in range(20):
        assert measurer.measure(candidate("leaks")).outcome is Outcome.LAUNCH_ERROR
    assert _resident_bytes(measurer.worker_pid) - before < 30e6


def _resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_kernel_that_gains_nothing_from_sparsity_is_flagged(on):
    """B08: a quarter of the pairs is visible, and it takes longer than all of them. It is right, so that it may win."""
    measurer = on("sparse")
    flagged = measurer.measure(candidate("slow_sparse"), probes=True)
    assert flagged.outcome is Outcome.OK
    (warning,) = flagged.check.warnings
    assert re.fullmatch(r"no speed-up from sparsity: [0-9.]+ us, and [0-9.]+ us without the mask", warning)
    assert measurer.measure(candidate("slow_dense"), probes=True).check.warnings == ()
