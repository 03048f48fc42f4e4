"""The picture of a mask and its counts, against the element mask."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.report._picture import GLYPHS, coverage, picture
from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.masks import visible

MASKS = st.sampled_from(
    [
        Mask(),
        Mask(pattern="causal"),
        Mask(pattern="sliding_window", window=7),
        Mask(pattern="prefix_lm", prefix_len=5),
        Mask(pattern="document", document_len=9),
    ]
)


def case_of(mask, length, pass_name="forward", **changes):
    problem = Problem(
        batch_size=changes.get("batch_size", 1),
        seqlen_q=length,
        seqlen_k=length,
        num_heads_q=changes.get("num_heads_q", 1),
        num_heads_kv=1,
        head_dim=64,
        head_dim_v=changes.get("head_dim_v", 64),
        dtype="bfloat16",
        mask=mask,
    )
    return Case("blocks", "1", None, problem, pass_name, {})


@settings(deadline=None, max_examples=60)
@given(MASKS, st.integers(1, 80), st.sampled_from([1, 4, 8]), st.sampled_from([1, 4, 8]), st.integers(2, 60))
def test_a_cell_is_full_or_empty_only_where_all_its_pairs_are(mask, length, block_q, block_kv, width):
    lines, down, across = picture(case_of(mask, length), (block_q, block_kv), width)
    rows, keys = block_q * down, block_kv * across
    positions = np.arange(length)
    seen = visible(mask, positions[:, None], positions[None, :], length, length)
    assert len(lines) == -(-length // rows) <= 32
    for index, line in enumerate(lines):
        assert len(line) == 2 * -(-length // keys) <= width
        for cell in range(len(line) // 2):
            inside = seen[index * rows : (index + 1) * rows, cell * keys : (cell + 1) * keys]
            expected = GLYPHS[2] if inside.all() else GLYPHS[1] if inside.any() else GLYPHS[0]
            assert line[2 * cell : 2 * cell + 2] == expected * 2


def test_causal_blocks_are_counted():
    found = coverage(case_of(Mask(pattern="causal"), 1024), (128, 128))
    assert (found.full, found.partial, found.empty) == (28, 8, 28)
    assert found.block_density == 36 / 64
    assert found.pair_density == 1025 / 2048


def test_operations_count_two_products_per_pair_forward():
    found = coverage(case_of(Mask(), 256, batch_size=2, num_heads_q=3, head_dim_v=32), (128, 128))
    assert found.needed_flop == found.executed_flop == 2 * (64 + 32) * 256 * 256 * 2 * 3
    assert found.waste == 0


def test_operations_count_five_products_per_pair_backward():
    found = coverage(case_of(Mask(), 256, "backward", head_dim_v=32), (128, 128))
    assert found.needed_flop == 2 * (3 * 64 + 2 * 32) * 256 * 256


def test_blocks_are_executed_whole_also_where_the_sequence_ends_inside_one():
    found = coverage(case_of(Mask(), 100), (64, 64))
    assert found.blocks == 4
    assert found.waste == 1 - 100 * 100 / (128 * 128)
