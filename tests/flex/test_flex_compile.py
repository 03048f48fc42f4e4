"""Device code for a GPU, compiled where there is none, in a process as compile workers are."""

import pytest
from flex_runs import FAMILY, compiled, make_problem, make_work

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


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return dict(zip(WORK, compiled(list(WORK.values()), tmp_path_factory.mktemp("cache")), strict=True))


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
