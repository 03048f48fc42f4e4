"""Against the base's own kernels, and against the stored time. Sleeps stand for slow kernels."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_device import SimulatedDevice, write_profile, write_tuned

from attnctl.bench.gate import GateVerdict
from attnctl.bench.plan import BASE, plans
from attnctl.bench.run import run
from attnctl.bench.settings import Settings
from attnctl.profile.load import load
from attnctl_kernels.contract import Candidate

ROOT = Path(__file__).parents[2]
FAMILIES = ROOT / "tests" / "families"
PROFILE = """\
schema: 1
family: faulty
problem: {batch_size: 1, seq_len: 64, num_heads_q: 1, head_dim: 16, dtype: float32}
config: {fault: none, delay_us: 60000}
gate: {max_regression: 50%}
"""
DELAY = 'int(config["delay_us"]) / 1e6'


@pytest.fixture
def gate(repository, tmp_path):
    """A repository with a profile, and an interpreter whose kernel takes ``share`` of the time."""
    pytest.importorskip("torch")
    Path("profiles/p.yaml").write_text(PROFILE)
    repository()

    def python(share):
        families = tmp_path / "base-families"
        shutil.copytree(FAMILIES, families)
        launch = families / "faulty" / "launch.py"
        text = launch.read_text()
        assert DELAY in text
        launch.write_text(text.replace(DELAY, f"{share} * {DELAY}"))
        program = tmp_path / "base-python"
        program.write_text(
            f"#!/bin/sh\nexport ATTNCTL_FAMILY_PATH={families} PYTHONPATH={ROOT}:{ROOT / 'kernels'}\n"
            f'exec {sys.executable} "$@"\n'
        )
        program.chmod(0o755)
        return str(program)

    def execute(*args):
        command = [sys.executable, "-m", "attnctl", "gate", "profiles", "--measure", "always", *args]
        environ = {"ATTNCTL_FAMILY_PATH": str(FAMILIES), "ATTNCTL_LOCK_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, env=os.environ | environ, capture_output=True, text=True, timeout=280, check=False
        )

    execute.python = python
    return execute


@pytest.mark.parametrize(("share", "code", "verdict"), [(0.25, 1, "fail"), (1.0, 0, "pass")])
def test_a_kernel_that_became_slower_is_seen_with_the_bases_interpreter(gate, share, code, verdict):
    """The config is the same on both sides: without the interpreter there is nothing to measure."""
    done = gate("--base", "HEAD", "--base-python", gate.python(share), "--cycles", "10")
    assert done.returncode == code, done.stderr
    assert f" against base: {verdict}: ratio " in done.stdout
    assert "note: base ran with the same versions as here" in done.stdout
    assert gate("--base", "HEAD").returncode == 0


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--base-python", sys.executable], 2, "--base-python goes with --base"),
        (["--base", "HEAD", "--base-python", "no-such-python"], 2, "--base-python no-such-python: no such program"),
        (["--base", "HEAD", "--base-python", "true"], 4, "true: the worker was lost in start: exited with status 0"),
    ],
)
def test_an_interpreter_that_is_none(gate, args, code, message):
    done = gate(*args)
    assert done.returncode == code
    assert message in done.stdout + done.stderr
    assert "regression" not in done.stdout


def judged(tmp_path, times_us, *, base=None, stored_us=None, judge_stored=False):
    path = write_profile(tmp_path)
    if stored_us is not None:
        write_tuned(path, stored_us)
    device = SimulatedDevice(times_us)
    settings = Settings(cycles=50, cache="cold", state_dir=tmp_path, band=0.05, judge_stored=judge_stored)
    against = () if base else ("default", "incumbent")
    (plan,) = plans(load(path), device.environment, against, base=(lambda *_: base) if base else None)
    return {each.against: each for each in run(plan, str(path), device, settings, lambda _: None).gate}


def test_a_base_that_did_not_work_has_no_speed_to_lose(tmp_path):
    """It was inconclusive, so that a change which mends a config could never pass."""
    base = Candidate(config={"block_q": 64, "block_kv": 64}, sparse_block=(64, 64))
    (found,) = judged(tmp_path, {16: 100.0, 64: "out is wrong"}, base=base).values()
    assert (found.against, found.verdict) == (BASE, GateVerdict.PASS)
    assert found.reason == "the config there fails: wrong_result: out is wrong"


@pytest.mark.parametrize(
    ("stored_us", "verdict"), [(100.0, "pass"), (50.0, "fail"), (95.24, "inconclusive"), (None, "inconclusive")]
)
def test_the_stored_time_is_judged_where_that_is_asked_for(tmp_path, stored_us, verdict):
    times = {128: 100.0, 64: 100.0, 16: 100.0}
    found = judged(tmp_path, times, stored_us=stored_us, judge_stored=True)
    assert found["the stored time"].verdict == verdict
    assert found["the stored time"].reason
    if stored_us is not None:
        assert "the stored time" not in judged(tmp_path, times, stored_us=stored_us)
