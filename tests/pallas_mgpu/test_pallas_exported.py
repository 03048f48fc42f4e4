"""Lowered programs that one process leaves on disk for the next: what is found again, and what is not."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from pallas_cases import make_candidate, make_config, make_problem, make_task

from attnctl_kernels.pallas_mgpu import exported, launch

TASK, CANDIDATE = make_task(make_problem()), make_candidate(make_config(64, 128))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path))
    return tmp_path / "jax"


@pytest.fixture
def lowerings(monkeypatch):
    """Of candidates, in this test."""
    lower, found = launch.LAUNCHER.lower, []
    monkeypatch.setattr(launch.LAUNCHER, "lower", lambda *work: found.append(work) or lower(*work))
    return found


def test_a_candidate_is_lowered_once(folder, lowerings):
    first, again = (launch.LAUNCHER.compile(TASK, CANDIDATE) for _ in range(2))
    assert (first.cached, again.cached, len(lowerings)) == (False, True, 1)
    assert first.binary == again.binary
    assert len(list(folder.iterdir())) == 1


def test_what_is_read_is_the_kernel_that_was_lowered(folder):
    launch.LAUNCHER.compile(TASK, CANDIDATE)
    (path,) = folder.iterdir()
    read, now = exported.read(path.name), launch.LAUNCHER.lower(TASK, CANDIDATE)
    assert exported.code(read) == exported.code(now)
    program = jax.jit(read.call, donate_argnums=1, keep_unused=True).trace(*read.in_tree.unflatten(read.in_avals)[0])
    text = program.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("mosaic_gpu_v2") == 1
    assert text.count("tf.aliasing_output") == len(read.out_avals)  # outputs go where the last ones were


@pytest.mark.parametrize(
    ("task", "candidate"),
    [
        (make_task(make_problem(1024)), CANDIDATE),
        (TASK, make_candidate(make_config(64, 64))),
        (make_task(make_problem(softmax_scale=1.0)), CANDIDATE),
    ],
)
def test_another_task_or_candidate_is_another_program(folder, lowerings, task, candidate):
    launch.LAUNCHER.compile(TASK, CANDIDATE)
    assert not launch.LAUNCHER.compile(task, candidate).cached
    assert len(lowerings) == 2


def test_another_kernel_is_another_program(folder, lowerings, monkeypatch):
    launch.LAUNCHER.compile(TASK, CANDIDATE)
    monkeypatch.delitem(launch.LAUNCHER.__dict__, "_made_of")
    monkeypatch.setattr(launch.LAUNCHER, "sources", lambda: {"attention_mgpu-sources": "edited"})
    launch.LAUNCHER.compile(TASK, CANDIDATE)
    monkeypatch.delitem(launch.LAUNCHER.__dict__, "_made_of")
    assert len(lowerings) == 2


@pytest.mark.parametrize("content", [b"", b"not a program", None])
def test_a_file_that_cannot_be_read_is_written_again(folder, lowerings, content):
    launch.LAUNCHER.compile(TASK, CANDIDATE)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert not launch.LAUNCHER.compile(TASK, CANDIDATE).cached
    assert launch.LAUNCHER.compile(TASK, CANDIDATE).cached


@pytest.mark.parametrize("missing", ["folder", "flatbuffers"])
def test_without_folder_or_package_nothing_is_kept(tmp_path, monkeypatch, lowerings, missing):
    if missing == "flatbuffers":
        monkeypatch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(exported.util, "find_spec", lambda name: None)
    else:
        monkeypatch.delenv("ATTNCTL_CACHE_DIR", raising=False)
    for _ in range(2):
        assert not launch.LAUNCHER.compile(TASK, CANDIDATE).cached
    assert len(lowerings) == 2
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path / "file"))
    assert launch.LAUNCHER.compile(TASK, CANDIDATE).binary


def test_a_cuda_program_is_not_run_elsewhere():
    """On the CPU of this test it is refused when it is called, before anything could be timed."""
    program = launch.LAUNCHER.lower(TASK, CANDIDATE)
    (inputs, outputs), _ = program.in_tree.unflatten([jnp.zeros(each.shape, each.dtype) for each in program.in_avals])
    with pytest.raises(ValueError, match="cuda"):
        jax.jit(program.call)(inputs, outputs)


def test_what_a_kernel_ignores_makes_no_other_code():
    """Upstream's own entry reads no schedule barrier: both are measured once."""
    codes = {
        exported.code(launch.LAUNCHER.lower(TASK, make_candidate(make_config(64, 128, use_schedule_barrier=barrier))))
        for barrier in (True, False)
    }
    assert len(codes) == 1


COMPILES = """
import jax
from attnctl_kernels.pallas_mgpu import launch
jax.monitoring.register_event_listener(lambda name, **_: print(name))
jax.jit(lambda x: x * 3 + 1)(1.0)
"""


def test_what_xla_compiled_is_there_for_the_next_process(folder):
    """A program of the CPU, which is compiled in no time: it is kept nevertheless."""
    environ = os.environ | {"ATTNCTL_CACHE_DIR": str(folder.parent), "JAX_PLATFORMS": "cpu"}
    said = [
        subprocess.run([sys.executable, "-c", COMPILES], env=environ, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert ["compilation_cache/cache_hits" in each for each in said] == [False, True]
