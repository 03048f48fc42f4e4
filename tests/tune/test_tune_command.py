"""``attnctl tune`` as a user runs it: real processes, a real kernel, signals, and two at once."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from sweeps import BLOCKS, Tool, journals, outcome_lines, profile

from attnctl.cli.app import run
from attnctl.gpu.names import cpu_name
from attnctl.profile.tuned import read
from attnctl.tune.journal import read as read_journal
from attnctl_kernels.contract import Outcome

WAITED = "is being measured on by another attnctl; waiting"
LARGER = BLOCKS.replace("block_q: [16, 64], block_kv: [16, 64, 128]", "block_q: [16, 32, 64, 128]")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, surroundings):
    """A folder in which two tunes of one profile were started at once; the first to measure, then the second."""
    folder = tmp_path_factory.mktemp("tuned")
    profile(folder)
    tools = [Tool(folder, "tune", "p.yaml", "--budget", "2m") for _ in range(2)]
    first, second = sorted((tool.finish() for tool in tools), key=lambda ended: WAITED in ended[2])
    return folder, first, second


def entry_in(folder, root="tuned"):
    (entry,) = read(folder / root / cpu_name() / "p.yaml").values()
    return entry


def tile(text):
    """Of the line that names the winner."""
    (line,) = (line for line in text.splitlines() if line.startswith("winner: "))
    return re.search(r"block_q=(\d+) block_kv=(\d+)", line).groups()


def test_a_whole_run(tuned):
    folder, (code, out, err), _ = tuned
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == f"causal-b1-s128-h1-d16-float32 forward on {cpu_name()}"
    assert lines[1] == "6 in the space, 0 dropped by rules, 6 tried"
    assert f"written: tuned/{cpu_name()}/p.yaml" in lines
    assert any("median us" in line and "lists us" in line for line in lines)
    (path,) = journals(folder)
    assert all(each.result.lists_us > 0 for each in read_journal(path).outcomes.values())
    assert "6 to measure" in err
    assert "finals: process 3 of 3" in err
    assert "Traceback" not in out + err
    assert (folder / ".attnctl" / ".gitignore").read_text() == "*\n"
    assert [each.name for each in (folder / "tuned" / cpu_name()).iterdir()] == ["p.yaml"]


def test_two_tunes_at_once_both_end_well_and_the_second_starts_from_the_first(tuned):
    folder, first, second = tuned
    assert WAITED not in first[2]
    assert WAITED in second[2]
    assert second[0] == 0, second[2]
    entry = entry_in(folder)
    assert tile(second[1]) == (str(entry.config["block_q"]), str(entry.config["block_kv"]))
    if tile(first[1]) == tile(second[1]):
        assert f"unchanged: tuned/{cpu_name()}/p.yaml" in second[1].splitlines()


def test_a_program_finds_the_result_without_a_framework(tuned):
    folder, *_ = tuned
    script = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "from attnctl import load_config; print(load_config('p.yaml'))\n"
        "print([name for name in ('torch', 'jax', 'cutlass', 'rich', 'filelock') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    entry = entry_in(folder)
    config = {"block_q": entry.config["block_q"], "block_kv": entry.config["block_kv"]}
    assert done.stdout.splitlines() == [str({**config, "sparse_block": entry.sparse_block}), "[]"], done.stderr


def test_the_journal_of_the_run_replays_to_the_same_winner(tuned, capsys, monkeypatch):
    folder, _, (_, out, _) = tuned
    monkeypatch.chdir(folder)
    (journal,) = journals(folder)
    before = journal.read_bytes()
    arguments = ["tune", "p.yaml", "--replay", str(journal), "--format", "json"]
    assert run(arguments) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert tuple(map(str, task["winner"]["config"].values())) == tile(out)
    assert task["written"] is None
    assert journal.read_bytes() == before


def test_a_finished_sweep_can_be_written_elsewhere_without_measuring(tuned):
    folder, *_ = tuned
    code, out, err = Tool(folder, "tune", "p.yaml", "--resume", "--out", "elsewhere").finish()
    assert code == 0, err
    assert f"written: elsewhere/{cpu_name()}/p.yaml" in out.splitlines()
    assert entry_in(folder, "elsewhere").config == entry_in(folder).config
    assert "to measure" not in err


def test_signals_and_kills_lose_nothing(tmp_path):
    """Ctrl-C, SIGTERM and SIGKILL one after the other; the last run goes on from all of them."""
    profile(tmp_path, LARGER)
    kept = b""
    for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        before = sum(len(outcome_lines(path)) for path in journals(tmp_path))
        tool = Tool(tmp_path, "tune", "p.yaml")
        tool.wait_for_outcomes(before + 2)
        os.kill(tool.process.pid, number)
        code, out, err = tool.finish()
        assert code == expected, err
        (journal,) = journals(tmp_path)
        lines = b"".join(outcome_lines(journal))
        assert lines.startswith(kept)
        kept = lines
        assert not (tmp_path / "tuned").exists()
        if number != signal.SIGKILL:
            assert "interrupted; fastest so far, not decided by finals and not written: " in out
            assert err.splitlines()[-1] == f"{number.name}: attnctl tune p.yaml --resume goes on where it stopped"
    done = len(read_journal(journal).outcomes)
    code, out, err = Tool(tmp_path, "tune", "p.yaml", "--budget", "2m").finish()
    assert code == 0, err
    assert f"resuming {journal}: it has {done} candidate{'s' * (done != 1)} (--fresh starts again)" in err.splitlines()
    assert b"".join(outcome_lines(journal)).startswith(kept)
    keys = [each.result.outcome for each in read_journal(journal).outcomes.values()]
    assert keys == [Outcome.OK] * len(keys)
    assert len(outcome_lines(journal)) == len(keys)
    assert (tmp_path / "tuned" / cpu_name() / "p.yaml").exists()


def test_dry_run_needs_no_device_and_says_what_is_dropped(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 2, seq_len: 8192, num_heads_q: 16, head_dim: 256, dtype: bfloat16}
mask: {pattern: causal}
"""
    profile(tmp_path, text)
    assert run(["tune", "p.yaml", "--dry-run", "--format", "json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["space"] == len(task["candidates"]) + sum(each["count"] for each in task["dropped"])
    assert run(["tune", "p.yaml", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"{task['space']} in the space, {len(task['candidates'])} to measure" in out
    assert "FA4-F007" in out
    assert "Fix: " in out
    assert not (tmp_path / ".attnctl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy", "greedy"], "there is no strategy 'greedy'"),
        (["--budget", "soon"], "budget 'soon': not a duration"),
        (["--budget", ""], "budget '': not a duration"),
        (["--device", "none"], "--device 'none': not a device"),
        (["--device", ""], "--device '': not a device"),
        (["--replay", "missing.jsonl"], "missing.jsonl: no such file"),
    ],
)
def test_wrong_usage_is_exit_code_2(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    profile(tmp_path)
    assert run(["tune", "p.yaml", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_profile_with_errors_is_not_tuned(tmp_path, capsys):
    path = profile(tmp_path, BLOCKS.replace("head_dim: 16", "head_dim: many"))
    assert run(["tune", str(path)]) == 1
    shown = capsys.readouterr()
    assert f"{path}:3:" in shown.err
    assert shown.out == ""


def test_a_missing_device_is_exit_code_4(tmp_path, monkeypatch):
    profile(tmp_path)
    code, out, err = Tool(tmp_path, "tune", "p.yaml", "--device", "7").finish()
    assert code == 4
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert out == ""
