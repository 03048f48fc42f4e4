"""Device code for a GPU, compiled where there is none, in a process as compile workers are, and handed over."""

import pytest
from flex_runs import FAMILY, compiled, make_problem, make_work, measured

from attnctl.profile.candidate import case_of
from attnctl_kernels.contract import Case

pytest.importorskip("torch")
pytest.importorskip("triton")

SMALL = make_problem(256, heads=1, batch_size=1)
WORK = {
    "forward": make_work(SMALL, BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=2),
    "backward": make_work(SMALL, "backward", BLOCK_M1=64, BLOCK_N1=64, BLOCK_M2=64, BLOCK_N2=64, num_warps=4),
    "too large": make_work(
        make_problem(256, heads=1, batch_size=1, head_dim=256), BLOCK_M=64, BLOCK_N=128, num_warps=8, num_stages=4
    ),
}


NOT_COMPILED = make_work(SMALL, BLOCK_M=64, BLOCK_N=64, num_warps=8, num_stages=2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def results(cache):
    return dict(zip(WORK, compiled(list(WORK.values()), cache), strict=True))


@pytest.fixture(scope="module")
def bound(cache, results):
    """Of a measuring process that finds what ``results`` left on disk."""
    names = ("forward", "backward", "backward again", "not compiled")
    work = [WORK["forward"], WORK["backward"], WORK["backward"], NOT_COMPILED]
    return dict(zip(names, measured(work, cache), strict=True))


def estimate(task, candidate):
    case = Case(
        "flex", task.version, task.arch, task.problem, task.pass_name, candidate.config, passes=(task.pass_name,)
    )
    (memory,) = FAMILY.resources(case_of(case, candidate))
    return memory.used


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_both_passes_compile(results, name):
    found = results[name]
    assert found["error"] is None
    assert 0 < found["resources"]["registers"] <= 255
    assert found["resources"]["smem_bytes"] <= estimate(*WORK[name]) * 1.05


def test_more_shared_memory_than_there_is_is_known_before_any_launch(results):
    error = results["too large"]["error"]
    assert error.startswith("OutOfResources: the kernel needs ")
    assert error.endswith("bytes of shared memory, sm_90 has 232448")


@pytest.mark.parametrize("name", ["forward", "backward", "backward again"])
def test_what_is_compiled_ahead_is_bound_without_a_compiler(bound, name):
    """Neither inductor nor Triton nor a process: no assembler, no C compiler."""
    assert not bound[name]["compilers"]
    assert not bound[name]["processes"]


def test_a_compiler_would_have_been_seen(bound):
    assert bound["not compiled"]["compilers"] == ["inductor", "triton"]
    assert bound["not compiled"]["processes"]


@pytest.mark.parametrize(("name", "programs"), [("forward", 4), ("backward", 8)])
def test_launched_is_what_was_compiled(bound, results, name, programs):
    """256 rows of one head in tiles of 64; the backward kernel has as many programs for dK and dV as for dQ."""
    assert bound[name]["launched"][-1] == {
        "grid": [programs, 1, 1],
        "num_warps": 4,
        "shared": results[name]["resources"]["smem_bytes"],
    }


def test_the_kernel_before_the_backward_kernel_is_tuned_once(bound):
    """Inductor times several launchers of it at the first call, and keeps the choice on disk: no candidate differs."""
    assert bound["backward"]["timed"] > 1
    assert bound["backward again"]["timed"] == 0
    assert bound["backward again"]["launched"] == bound["backward"]["launched"]
