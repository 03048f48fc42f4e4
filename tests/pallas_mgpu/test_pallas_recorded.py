"""The sweep that was recorded on an H200: what rules foresaw, and what is decided from it."""

import json
import re
from pathlib import Path

import pytest

from attnctl.cli.app import run
from attnctl.tune.journal import read
from attnctl_kernels.contract import Outcome

ROOT = Path(__file__).parents[2]
JOURNAL = ROOT / "tests/data/journals/pallas_mgpu/dense-4k-d128-forward.jsonl.gz"


@pytest.fixture
def replayed(tmp_path, capsys):
    text = (ROOT / "profiles/dense-4k-d128.yaml").read_text(encoding="utf-8")
    profile = tmp_path / "dense-4k-d128.yaml"
    profile.write_text(re.sub(r"passes: .*", "passes: [forward]", text), encoding="utf-8")
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


def test_configs_that_spill_are_the_slowest():
    """PAL-H003 warns of them."""
    times = {
        (each.candidate.config["block_q"], each.candidate.config["block_kv"]): each.result.timing.median_us
        for each in read(JOURNAL).outcomes.values()
    }
    assert min(times, key=times.get) == (64, 128)
    assert max(times, key=times.get) == (128, 128)
