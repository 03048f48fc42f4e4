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
    (192, "float16", PROBLEM.mask),
    (256, "bfloat16", Mask(pattern="causal")),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[2].pattern}")
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
    """Of 16 deep each: S and dP over head_dim, dV and dK over 64 rows, each piece of dQ over the keys of the block.

    The first S of all stands ahead of the loop, with a wait of its own.
    """
    head_dim, config, _, cache = kernel
    code = disassembled(cache)
    row_parts, key_parts = config["tile_m"] // 64, config["tile_n"] // 64
    pieces = own.pieces(head_dim, config) // own.warp_groups(head_dim, config)
    deep = head_dim // 16
    assert code.count("HGMMA") == deep + row_parts * (2 * deep + 2 * 4) + pieces * key_parts * 4
    # Of every part but the first S, of every part dP, of every piece dQ; ahead of the last piece dK, behind it S. And
    # of dV, where dO is let go of then.
    of_dv = own.do_stages(head_dim, config) < config["stages"]
    assert code.count("WARPGROUP.DEPBAR") == 1 + (2 * row_parts - 1) + pieces + 2 + of_dv
    # A warp adds its part of a piece at once; those of the last step behind the loop.
    assert code.count("UBLKRED") == pieces + 1
    assert len(re.findall(r"STS\.128", code)) == pieces * own.piece_columns(head_dim) // 8
