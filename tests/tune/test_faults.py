"""A real sweep over everything that can go wrong with a kernel: the good config wins, and the sweep goes on."""

import os
import signal
import time
from pathlib import Path

import pytest
from sweeps import Told, profile, tuning, workers

from attnctl.profile.tuned import read
from attnctl.tune.budget import Budget
from attnctl.tune.journal import read as read_journal
from attnctl.tune.outcome import Status
from attnctl_kernels.contract import Outcome

# The bad come first, in between and last; all would be faster than the incumbent, and NaN faster than anything.
PROFILE = """\
schema: 1
family: faulty
problem: {batch_size: 1, seq_len: 64, num_heads_q: 2, head_dim: 16, dtype: float32}
mask: {pattern: blocks, block_size: [16, 16], rows: [[0], [0, 1], [3], [0, 3]]}
config: {fault: none, delay_us: 20000}
search:
  fault: [hang, nan_fast, compile_error, illegal, ignores_sparsity, oom, none, compile_abort, abort]
  delay_us: [1000]
"""

EXPECTED = {
    "hang": Outcome.TIMEOUT,
    "nan_fast": Outcome.WRONG_RESULT,
    "illegal": Outcome.LAUNCH_ERROR,
    "ignores_sparsity": Outcome.WRONG_RESULT,
    "oom": Outcome.OUT_OF_RESOURCES,
    "abort": Outcome.WORKER_DIED,
    "compile_error": Outcome.COMPILE_ERROR,
    "compile_abort": Outcome.WORKER_DIED,
    "none": Outcome.OK,
}


def outcomes(result):
    return {tuple(each.candidate.config.values()): each.result for each in result.outcomes}


def own_workers():
    """Process id -> command line of the workers of this process."""
    parent = str(os.getpid()).encode()
    return {pid: words for pid, words in workers() if words[words.index(b"--parent") + 1] == parent}


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class KillsAWorker(Told):
    """Kills what is not compiling between two candidates, as the system might."""

    def outcome(self, candidate, result, note=""):
        super().outcome(candidate, result, note)
        if len(self.outcomes) == 2:
            for pid, words in own_workers().items():
                if b"--background" not in words:
                    os.kill(pid, signal.SIGKILL)
                    while state(pid) != "Z":
                        time.sleep(0.01)


@pytest.fixture(scope="module")
def swept(tmp_path_factory, surroundings):
    """The folder, the result, and what was said."""
    folder = tmp_path_factory.mktemp("faulty")
    surroundings.chdir(folder)
    progress = KillsAWorker()
    it = tuning(profile(folder, PROFILE), progress, jobs=1)
    it.run()
    return folder, it.results[0], progress


def test_every_fault_is_an_outcome_of_its_own_kind(swept):
    _, result, _ = swept
    by_fault = {fault: each.outcome for (fault, _), each in outcomes(result).items()}
    assert by_fault == EXPECTED
    reasons = outcomes(result)
    assert "SIGABRT" in reasons["abort", 1000].reason
    assert "deadline" in reasons["hang", 1000].reason
    assert all(each.reason for each in reasons.values() if each.outcome is not Outcome.OK)


def test_the_good_config_wins(swept):
    folder, result, _ = swept
    assert result.status is Status.WON
    assert result.winner.config == {"fault": "none", "delay_us": 0}
    (entry,) = read(result.written).values()
    assert entry.config == {"fault": "none", "delay_us": 0}
    assert result.written.is_relative_to(folder / "tuned")


def test_a_worker_that_was_killed_between_candidates_costs_nothing(swept):
    _, result, progress = swept
    assert len(progress.outcomes) == len(result.space.candidates) == 11
    assert {each.outcome for (fault, _), each in outcomes(result).items() if fault == "none"} == {Outcome.OK}


def test_no_worker_is_left(swept):
    parent = str(os.getpid()).encode()
    assert not [
        pid for pid, words in workers() if b"--parent" in words and words[words.index(b"--parent") + 1] == parent
    ]


def test_what_is_dangerous_is_not_tried_again_and_the_winner_stays(swept):
    folder, first, _ = swept
    it = tuning(folder / "p.yaml", budget=Budget(30))
    it.run()
    (second,) = it.results
    skipped = {key[0] for key, each in outcomes(second).items() if each.outcome is Outcome.SKIPPED}
    assert skipped == {"hang", "nan_fast", "ignores_sparsity", "abort", "compile_abort"}
    reasons = [each.reason for each in outcomes(second).values() if each.outcome is Outcome.SKIPPED]
    assert all("earlier with the same versions; --fresh tries it again): " in each for each in reasons)
    assert second.space.incumbent == first.winner
    assert second.winner == first.winner
    assert second.status in {Status.TIE, Status.KEPT}
    journals = sorted(second.journal.parent.iterdir())
    assert len(journals) == 2
    assert all(read_journal(each).done for each in journals)
