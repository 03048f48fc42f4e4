"""What people see while a sweep runs."""

import re

import pytest
from sweeps import BLOCKS, PREPARED, bad, ok, profile, record, tuning

from attnctl.report._live import live
from attnctl.report._sweep import summary
from attnctl.report._tally import Tally
from attnctl_kernels.contract import Outcome

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def space(tmp_path):
    (space,) = tuning(profile(tmp_path)).spaces()
    return space


def tried(it, space):
    default, incumbent, third, fourth, *_ = space.candidates
    assert space.labels[default.key] == "default"
    assert space.labels[incumbent.key] == "incumbent"
    it(default, ok(200.0))
    it(incumbent, ok(150.0))
    it(third, bad(reason="out is wrong\x1b[2J"))
    it(fourth, ok(100.0))
    return fourth


def test_the_table_says_what_was_tried_what_failed_and_what_is_best(space):
    tally = Tally(space, total=6)
    best = tried(tally.add, space)
    rows = dict(tally.rows())
    assert re.fullmatch(r"4 of 6, \d+ s left", rows["measured"])
    assert rows["failed"] == "1: 1 wrong_result"
    assert rows[""].startswith("wrong_result: out is wrong\\x1b[2J (block_q=")
    assert rows["default"] == "200.0 us"
    assert rows["incumbent"] == "150.0 us"
    assert rows["best"] == f"100.0 us, 0.500 of the default's: {best}"
    assert "finals" not in rows


def test_what_fails_in_the_finals_is_no_longer_the_best_and_is_counted_once(space):
    tally = Tally(space, total=6)
    best = tried(tally.add, space)
    tally.add(best, bad(Outcome.LAUNCH_ERROR, "an illegal memory access"))
    rows = dict(tally.rows())
    assert rows["measured"].startswith("4 of 6")
    assert rows["failed"] == "2: 1 launch_error, 1 wrong_result"
    assert rows["best"] == f"150.0 us, 0.750 of the default's: {space.incumbent}"
    assert str(tally).startswith("4/6 done, 2 failed (1 launch_error, 1 wrong_result), best 150.0 us ")


def test_finals_have_an_end_in_sight_once_one_process_is_done(space):
    tally = Tally(space, total=6)
    tried(tally.add, space)
    tally.enter_finals(1, 3, 5)
    assert dict(tally.rows())["finals"] == "process 1 of 3, 5 contenders"
    assert dict(tally.rows())["measured"] == "4 of 6"
    tally.enter_finals(2, 3, 5)
    assert re.fullmatch(r"process 2 of 3, 5 contenders, about \d+ s left", dict(tally.rows())["finals"])


def test_drops_are_counted_by_rule(tmp_path):
    text = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 1, seq_len: 1024, num_heads_q: 4, head_dim: 256, dtype: bfloat16}
"""
    (space,) = tuning(profile(tmp_path, text)).spaces()
    (dropped,) = (text for word, text in Tally(space, total=1).rows() if word == "dropped")
    assert re.fullmatch(rf"{len(space.drops)} by rules: FA4-F\d+ \d+(, FA4-F\d+ \d+)*", dropped)


@pytest.mark.parametrize("columns", [30, 80])
def test_no_row_of_the_table_is_wider_than_the_terminal(space, monkeypatch, capsys, columns):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = live(terminal=True)
    progress.start(space, PREPARED, 0, 6)
    tried(progress.outcome, space)
    progress.finals(1, 3, 5)
    progress.end()
    err = capsys.readouterr().err
    *_, last = err.split("measured ")
    shown = [_CONTROL.sub("", line) for line in err.replace("\r", "\n").split("\n")]
    assert max(map(len, shown)) <= columns
    assert "process 1 of 3" in _CONTROL.sub("", last)
    assert "\x1b[2J" not in err


def test_a_dumb_terminal_gets_lines(space, capsys):
    progress = live(terminal=False)
    progress.start(space, PREPARED, 0, 6)
    tried(progress.outcome, space)
    progress.finals(1, 3, 5)
    progress.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(": 6 to measure, density 0.500, 0 dropped by rules")
    assert any(each.startswith(str(Outcome.WRONG_RESULT)) for each in lines)
    assert lines[-1] == "finals: process 1 of 3, 5 contenders"


def test_the_end_names_every_candidate_that_was_wrong(tmp_path, space):
    """Nobody would have noticed them; of other failures one example will do."""
    *_, first, second, third = space.candidates
    results = {first.key: bad(reason="dq is NaN"), second.key: bad(), third.key: bad(Outcome.TIMEOUT, "too long")}
    path = tmp_path / "p.yaml"
    it = tuning(path, replay=(record(path, tmp_path / "j.jsonl", lambda each: results.get(each.key, ok(100.0))),))
    it.run()
    text = "\n".join(summary(it.results[0]))
    assert re.search(rf"^wrong_result 2: dq is NaN\. {first}$", text, re.MULTILINE)
    assert re.search(rf"^  out is wrong\. {second}$", text, re.MULTILINE)
    assert re.search(rf"^timeout 1: too long\. Example: {third}$", text, re.MULTILINE)


@pytest.mark.parametrize(("width", "said_once"), [(80, True), (200, False)])
def test_a_table_too_wide_says_once_what_is_the_same_in_every_row(tmp_path, monkeypatch, width, said_once):
    """fa4's backward pass has fourteen parameters, most of which agree among the fastest."""
    monkeypatch.setenv("COLUMNS", str(width))
    text = BLOCKS.replace("block_q: [16, 64], block_kv: [16, 64, 128]", "block_q: [16], block_kv: [16, 64, 128]")
    text = text.replace("schema: 1", "schema: 1\nsparse_block: [64, 64]")
    path = profile(tmp_path, text)
    it = tuning(path, replay=(record(path, tmp_path / "j.jsonl", lambda each: ok(100.0)),))
    it.run()
    lines = list(summary(it.results[0]))
    (head,) = (line for line in lines if "median us" in line)
    assert ("sparse_block" in head) is not said_once
    assert any(line.startswith("  all: ") and "sparse_block=64x64" in line for line in lines) is said_once
    assert "block_kv" in head


def test_the_end_says_why_default_and_incumbent_have_no_time(tmp_path, space):
    failing = {each.key for each in space.required}
    path = tmp_path / "p.yaml"
    journal = record(path, tmp_path / "j.jsonl", lambda each: bad() if each.key in failing else ok(100.0))
    it = tuning(path, replay=(journal,))
    it.run()
    lines = list(summary(it.results[0]))
    assert "the default has no time: wrong_result: out is wrong" in lines
    assert "the incumbent has no time: wrong_result: out is wrong" in lines
