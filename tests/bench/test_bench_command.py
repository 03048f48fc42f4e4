"""`attnctl bench` with real workers on the processor. Sleeps stand for slow kernels, so that load does not matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_device import write_tuned

import attnctl_kernels
from attnctl.gpu.names import cpu_name

FAMILIES = Path(__file__).parents[1] / "families"
SLOW = """\
schema: 1
family: faulty
problem: {batch_size: 1, seq_len: 64, num_heads_q: 1, head_dim: 16, dtype: float32}
config: {fault: none, delay_us: 150000}
gate: {max_regression: 50%}
"""


@pytest.fixture
def bench(tmp_path):
    def run(profile, *args, name="demo.yaml", **environ):
        (tmp_path / name).write_text(profile)
        return subprocess.run(
            [sys.executable, "-m", "attnctl", "bench", name, *args],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ
            | {"ATTNCTL_FAMILY_PATH": str(FAMILIES), "ATTNCTL_LOCK_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
            | environ,
            timeout=280,
            check=False,
        )

    return run


def test_a_profile_of_our_own_family_against_its_default_and_another_family(bench, tmp_path):
    profile = """\
schema: 1
family: blocks
problem: {batch_size: 1, seq_len: 128, num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 16, block_kv: 16}
"""
    done = bench(profile, "--against", "default,faulty", "--cycles", "5", "--format", "json")
    assert done.returncode == 0, done.stderr
    (match,) = json.loads(done.stdout)["matches"]
    ours, default, faulty = match["rows"]
    assert [row["name"] for row in match["rows"]] == ["profile", "default", "faulty"]
    assert ours["candidate"]["config"] == {"block_q": 16, "block_kv": 16}
    assert all(row["latency"]["samples"] == 15 for row in match["rows"])
    assert default["comparison"]["low"] <= default["comparison"]["ratio"] <= default["comparison"]["high"]
    assert (default["interleaved"], faulty["interleaved"]) == (True, False)
    assert faulty["comparison"]["ratio"] == pytest.approx(
        ours["latency"]["median_us"] / faulty["latency"]["median_us"], rel=1
    )
    assert match["device_name"] == cpu_name()
    assert (tmp_path / ".attnctl" / ".gitignore").read_text() == "*\n"


def test_a_regression_exits_with_1_and_annotates_the_gates_line(bench):
    done = bench(SLOW, "--gate", "--cycles", "4", "--format", "github")
    assert done.returncode == 1, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("::error file=demo.yaml,line=5,col=24,title=GATE regression::dense-b1-s64-h1-d16-float32")
    assert "profile against default: ratio" in line
    assert "process 6 of 6" in done.stderr


def test_a_tuned_config_that_is_faster_than_its_baseline_passes(bench, tmp_path, monkeypatch):
    (tmp_path / "demo.yaml").write_text(SLOW)
    monkeypatch.setattr(attnctl_kernels, "__path__", [*attnctl_kernels.__path__, str(FAMILIES)])
    faster = {"fault": "none", "delay_us": 2000}
    write_tuned(tmp_path / "demo.yaml", 100.0, config=faster, sparse_block=None, device=cpu_name())
    done = bench(SLOW, "--gate", "--against", "incumbent", "--cycles", "12")
    assert done.returncode == 0, done.stderr
    assert "\ntuned = fault=none delay_us=2000" in done.stdout
    assert "\ngate against incumbent: pass: ratio 0." in done.stdout


def test_nothing_to_compare_with_exits_with_3(bench):
    done = bench(SLOW, "--gate", "--against", "incumbent", "--cycles", "4")
    assert done.returncode == 3, done.stderr
    assert "\nincumbent: the same config as profile\n" in done.stdout
    assert "\ngate against nothing: inconclusive: there is nothing to compare with: " in done.stdout


@pytest.mark.parametrize(
    ("profile", "args", "code", "message"),
    [
        (SLOW, ("--device", "cuda:7"), 4, "error: "),
        (
            SLOW,
            ("--against", "nonsense"),
            2,
            "error: --against nonsense: no such baseline or family\nhint: known: default, ",
        ),
        (SLOW, ("--cycles", "0"), 2, "--cycles"),
        (SLOW.replace("50%", "0.5"), ("--gate",), 1, "demo.yaml:5:"),
        (SLOW.replace("50%", "half"), ("--gate",), 1, "demo.yaml:5:"),
        (
            SLOW.replace("50%", "0%"),
            ("--gate",),
            2,
            "error: demo.yaml:5:24: gate.max_regression: '0%' is not a percentage",
        ),
        (SLOW.replace("delay_us", "delay"), (), 1, "demo.yaml:4:23: error "),
    ],
    ids=["no device", "no baseline", "no cycles", "a number as band", "a word as band", "no band", "a finding"],
)
def test_what_cannot_be_measured_says_why(bench, profile, args, code, message):
    done = bench(profile, *args)
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.returncode == code
