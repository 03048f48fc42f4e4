"""The backward kernels compile without a GPU, take what the model says, and no product waits for another."""

import re

import pytest
from test_ranker_compile import NVDISASM, PROBLEM, compiled, disassembled

from attnctl_kernels.contract import Mask
from attnctl_kernels.ranker import backward_config as own

pytest.importorskip("cutlass")

CASES = [  # head_dim, dtype, mask
    (128, "bfloat16", PROBLEM.mask),
    (64, "float16", PROBLEM.mask),
    (128, "bfloat16", Mask(pattern="causal")),
    (64, "float16", Mask(pattern="causal")),
    (96, "bfloat16", PROBLEM.mask),
    (96, "float16", Mask(pattern="causal")),
]


@pytest.fixture(scope="module", params=CASES, ids=["128", "64", "128, ranges", "64, ranges", "96", "96, ranges"])
def kernel(request, tmp_path_factory):
    head_dim, dtype, mask = request.param
    config, cache = own.default_config(head_dim), tmp_path_factory.mktemp("cache")
    problem = PROBLEM.model_copy(update={"head_dim": head_dim, "head_dim_v": head_dim, "dtype": dtype, "mask": mask})
    return head_dim, config, compiled(problem, config, cache, "backward"), cache


def test_it_takes_the_shared_memory_of_the_model_and_spills_nothing(kernel):
    head_dim, config, found, _ = kernel
    assert found["resources"]["smem_bytes"] == own.smem_bytes(head_dim, config)
    assert found["resources"]["local_bytes"] == found["resources"]["stack_bytes"] == 0


@pytest.mark.skipif(not NVDISASM.is_file(), reason="the triton wheel brings nvdisasm")
def test_a_step_is_its_products_and_as_few_waits(kernel):
    """Of 16 deep each: S and dP over head_dim, dV and dK over 64 rows, each square of dQ over the keys of the block.

    The first S of all stands ahead of the loop, with a wait of its own.
    """
    head_dim, config, _, cache = kernel
    code = disassembled(cache)
    parts, groups = config["tile_m"] // 64, own.warp_groups(config)
    squares = own.squares(head_dim, config) // groups
    deep = head_dim // 16
    assert code.count("HGMMA") == deep + parts * (2 * deep + 2 * 4) + squares * groups * 4
    # Of every part but the first S, of every part dP, of every square dQ; ahead of the last square dK, behind it S.
    assert code.count("WARPGROUP.DEPBAR") == 1 + (2 * parts - 1) + squares + 2
    # dQ leaves a piece of 4 KiB at a time; that of the last step behind the loop.
    assert code.count("UBLKRED") == squares + 1
    assert len(re.findall(r"STS\.128", code)) == squares * 8
