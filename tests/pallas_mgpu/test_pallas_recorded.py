"""Sweeps that were recorded on an H200: what rules foresaw, and what is decided from them."""

import json
import shutil
from pathlib import Path

import pytest

from attnctl.cli.app import run
from attnctl.profile.load import load
from attnctl.profile.lookup import Hit, lookup
from attnctl.profile.problems import tasks
from attnctl.tune.journal import read
from attnctl_kernels.contract import Outcome

ROOT = Path(__file__).parents[2]
JOURNAL = ROOT / "tests/data/journals/pallas_mgpu/dense-4k-d128-forward.jsonl.gz"

PROFILE = """
family: pallas_mgpu
version: 0.11.2
arch: sm_90
passes: [forward]
problem: {batch_size: 2, seq_len: 4096, num_heads_q: 16, head_dim: 128, dtype: float16}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, compute_wgs_bwd: 2,
         block_q_dkv: 64, block_kv_dkv: 64, block_q_dq: 64, block_kv_dq: 64}
"""


@pytest.fixture
def replayed(tmp_path, capsys):
    profile = tmp_path / "dense-4k-d128.yaml"
    profile.write_text(PROFILE, encoding="utf-8")
    arguments = ["tune", str(profile), "--strategy", "exhaustive", "--replay", str(JOURNAL), "--format", "json"]
    assert run(arguments) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    return task


def test_rules_foresaw_every_failure_and_dropped_nothing_that_ran(replayed):
    recorded = read(JOURNAL)
    assert {each.result.outcome for each in recorded.outcomes.values()} == {Outcome.OK}
    dropped = sum(each["count"] for each in replayed["dropped"])
    assert len(recorded.outcomes) + dropped == replayed["space"]


def test_the_emitter_wins_over_upstreams_choice(replayed):
    winner = replayed["winner"]["config"]
    assert (winner["block_q"], winner["block_kv"], winner["pipeline_emitter"]) == (64, 128, True)


def test_the_tuned_file_has_the_same_winner(replayed):
    """It was decided in another process, on another device."""
    loaded = load(ROOT / "profiles/dense-4k-d128.yaml")
    (task,) = tasks(loaded.profile)
    found = lookup(loaded, task, "nvidia_h200")
    assert isinstance(found, Hit)
    assert found.candidate.config == replayed["winner"]["config"]


def test_backward_is_decided_as_it_was_and_no_failure_came_unforeseen(tmp_path, capsys):
    journal = JOURNAL.with_name("dense-4k-d128-backward.jsonl.gz")
    recorded = read(journal)
    assert {each.result.outcome for each in recorded.outcomes.values()} == {Outcome.OK}
    profile = shutil.copy(ROOT / "profiles/dense-4k-d128-backward.yaml", tmp_path)
    arguments = ["tune", profile, "--strategy", "exhaustive", "--replay", str(journal), "--format", "json"]
    assert run(list(map(str, arguments))) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert len(recorded.outcomes) + sum(each["count"] for each in task["dropped"]) == task["space"]
    loaded = load(ROOT / "profiles/dense-4k-d128-backward.yaml")
    found = lookup(loaded, tasks(loaded.profile)[0], "nvidia_h200")
    assert isinstance(found, Hit)
    assert found.candidate.config == task["winner"]["config"]


def test_configs_that_spill_are_the_slowest():
    """PAL-H003 warns of them."""
    times = {
        (each.candidate.config["block_q"], each.candidate.config["block_kv"]): each.result.timing.median_us
        for each in read(JOURNAL).outcomes.values()
    }
    assert min(times, key=times.get) == (64, 128)
    assert max(times, key=times.get) == (128, 128)
