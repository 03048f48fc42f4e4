"""Sweeps recorded on an H200, replayed: the decisions are those on disk, without a GPU."""

import json
import shutil
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest
from sweeps import Told, tuning

from attnctl.cli.app import run
from attnctl.gpu.lane import Lanes
from attnctl.gpu.protocol import Result
from attnctl.gpu.replay import ReplayMeasurer
from attnctl.profile.candidate import case_of, error_rules
from attnctl.profile.load import load
from attnctl.profile.lookup import Hit, case_for, lookup
from attnctl.profile.problems import tasks
from attnctl.tune.finals import Finals, ranked
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Journal, read
from attnctl.tune.screening import Recorder
from attnctl_kernels.contract import Outcome
from attnctl_kernels.rule import check

ROOT = Path(__file__).parents[2]
JOURNALS = sorted((ROOT / "tests/data/journals").glob("*.jsonl.gz"))
NAMES = [path.name.removesuffix(".jsonl.gz") for path in JOURNALS]
DEVICE = "nvidia_h200"


def stored(name):
    """The tuned config of the one problem in a profile."""
    loaded = load(ROOT / "profiles" / f"{name}.yaml")
    (task,) = tasks(loaded.profile)
    return lookup(loaded, task, DEVICE)


def replay(name, folder, capsys, *options):
    """The JSON of a replay that knows of no tuned profile, as the recorded sweep did."""
    profile = shutil.copy(ROOT / "profiles" / f"{name}.yaml", folder)
    journal = ROOT / "tests/data/journals" / f"{name}.jsonl.gz"
    assert run(["tune", str(profile), "--replay", str(journal), "--format", "json", *options]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    return task


SPACES = {
    "document-8k-gqa": 108,
    "ranker-8k": 108,
    "ranker-8k-short": 108,
    "window-8k-d256": 108,
    "window-8k-d64": 108,
    "ranker-8k-backward": 1537,  # the default has another subtile_factor than the search
    "window-8k-d64-backward": 1536,
}
# Backward candidates that failed when no rule foresaw it yet.
FAILURES = {
    "ranker-8k-backward": {Outcome.WORKER_DIED: 15, Outcome.WRONG_RESULT: 10},
    "window-8k-d64-backward": {Outcome.WORKER_DIED: 6, Outcome.COMPILE_ERROR: 20},
}


EVERY = sorted((ROOT / "tests/data/journals").rglob("*.jsonl.gz"))


@pytest.mark.parametrize("path", EVERY, ids=[path.name.removesuffix(".jsonl.gz") for path in EVERY])
def test_rules_foresee_every_failure_of_any_family_and_drop_nothing_that_was_right(path):
    recorded = read(path)
    profiles = (ROOT / "profiles").rglob(f"{recorded.header.profile}.yaml")
    case = case_for(load(next(each for each in profiles if "tuned" not in each.parts)), recorded.header.task)
    rules = error_rules(case)
    dropped = {key for key, each in recorded.outcomes.items() if any(check(case_of(case, each.candidate), rules))}
    failed = {key for key, each in recorded.outcomes.items() if each.result.outcome is not Outcome.OK}
    assert dropped == failed


def test_these_sweeps_are_recorded():
    assert set(NAMES) == set(SPACES)


@pytest.mark.parametrize("name", NAMES)
def test_replay_decides_as_the_sweep_did(name, tmp_path, capsys):
    task = replay(name, tmp_path, capsys)
    found = stored(name)
    assert isinstance(found, Hit)
    assert task["winner"]["config"] == found.candidate.config
    assert task["winner"]["sparse_block"] == list(found.candidate.sparse_block)
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize("path", JOURNALS, ids=NAMES)
def test_rules_foresaw_every_failure_and_dropped_nothing_that_ran(path, tmp_path, capsys):
    name, recorded = path.name.removesuffix(".jsonl.gz"), read(path)
    failures = Counter(each.result.outcome for each in recorded.outcomes.values())
    right = failures.pop(Outcome.OK)
    assert failures == FAILURES.get(name, {})
    task = replay(name, tmp_path, capsys, "--strategy", "exhaustive")
    assert task["outcomes"] == {Outcome.OK: right}
    dropped = sum(each["count"] for each in task["dropped"])
    assert right + dropped == task["space"] == SPACES[name]


@pytest.mark.parametrize("name", NAMES)
def test_random_strategy_measures_no_more_than_it_was_asked_for(name, tmp_path, capsys):
    task = replay(name, tmp_path, capsys, "--strategy", "random:samples=8,seed=1")
    best = ranked(list(read(ROOT / "tests/data/journals" / f"{name}.jsonl.gz").outcomes.values()))[0]
    assert sum(task["outcomes"].values()) <= 8 + 2  # and the default, and the incumbent
    assert min(each["median_us"] for each in task["ranking"]) >= best.result.timing.median_us


@pytest.mark.parametrize("path", JOURNALS, ids=NAMES)
def test_every_candidate_that_was_tried_is_accounted_for(path, tmp_path, capsys):
    name = path.name.removesuffix(".jsonl.gz")
    timings = [each.result.timing for each in read(path).outcomes.values() if each.result.timing]
    given_up = sum(each.gave_up for each in timings)
    profile = shutil.copy(ROOT / "profiles" / f"{name}.yaml", tmp_path)
    assert run(["tune", str(profile), "--replay", str(path), "--strategy", "exhaustive"]) == 0
    rest = f", {given_up} more given up as clearly slower" if given_up else ""
    assert f"fastest of {len(timings) - given_up} that ran and were right{rest}:\n" in capsys.readouterr().out


class Submitted(list):
    """In place of compile workers: which candidates' probes were asked for."""

    def submit(self, task, candidate):
        self.append(candidate)
        done = Future()
        done.set_result(Result(outcome=Outcome.OK))
        return done


def slower(record, factor):
    timing = record.result.timing.model_copy(update={"median_us": record.result.timing.median_us * factor})
    return record.model_copy(update={"result": record.result.model_copy(update={"timing": timing})})


@pytest.mark.parametrize("factor", [1.0, 1.01])  # a device's clock may be 1 % lower for one candidate of the screening
@pytest.mark.parametrize("path", JOURNALS, ids=NAMES)
def test_the_winner_is_among_those_whose_last_check_is_got_ready_before_the_finals(path, factor, tmp_path):
    name, recorded = path.name.removesuffix(".jsonl.gz"), read(path)
    winner = recorded.done.winner
    shutil.copy(ROOT / "profiles" / f"{name}.yaml", tmp_path / "p.yaml")
    (space,) = tuning(tmp_path / "p.yaml").spaces()
    journal = Journal.create(tmp_path / "journal", recorded.header)
    for each in recorded.outcomes.values():
        journal.append(slower(each, factor) if each.candidate == winner else each)
    measurer, ready, known = ReplayMeasurer([recorded]), Submitted(), []
    replayed = measurer.finals
    measurer.finals = lambda *call: known.append(list(ready)) or replayed(*call)
    measurer.prepare(recorded.header.task)
    with Lanes.of(measurer) as lanes:
        recorder = Recorder(space, measurer.environment, journal, None, Told(), Interrupts())
        Finals(lanes, recorder, pool=ready).run()
    assert winner in known[0]
