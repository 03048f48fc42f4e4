"""The blocks of a mask, their picture and their counts, against the element mask."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.report._mask.blocks import Kind, blocks_of
from attnctl.report._mask.coverage import Waves, coverage
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
SIZES = st.sampled_from([1, 4, 8])


def case_of(mask, length, pass_name="forward", **changes):
    problem = Problem(
        batch_size=changes.get("batch_size", 1),
        seqlen_q=changes.get("seqlen_q", length),
        seqlen_k=length,
        num_heads_q=changes.get("num_heads_q", 1),
        num_heads_kv=1,
        head_dim=64,
        head_dim_v=changes.get("head_dim_v", 64),
        dtype="bfloat16",
        mask=mask,
    )
    return Case("blocks", "1", None, problem, pass_name, {})


def kind_of(seen, on_diagonal):
    if seen.all():
        return Kind.FULL
    if not seen.any():
        return Kind.EMPTY
    return Kind.DIAGONAL if on_diagonal.any() else Kind.PARTIAL


@settings(deadline=None, max_examples=80)
@given(MASKS, st.tuples(st.integers(1, 80), st.integers(1, 80)), st.tuples(SIZES, SIZES), st.integers(1, 30))
def test_a_cell_is_full_or_empty_only_where_all_its_pairs_are(mask, lengths, block, width):
    (seqlen_q, seqlen_k), (block_q, block_kv) = lengths, block
    cells = blocks_of(case_of(mask, seqlen_k, seqlen_q=seqlen_q), block).cells(32, width)
    rows, keys = block_q * cells.down, block_kv * cells.across
    q, k = np.arange(seqlen_q)[:, None], np.arange(seqlen_k)[None, :]
    seen = visible(mask, q, k, seqlen_q, seqlen_k)
    diagonal = k == q + seqlen_k - seqlen_q
    assert cells.kinds.shape == (-(-seqlen_q // rows), -(-seqlen_k // keys))
    assert cells.kinds.shape[0] <= 32
    assert cells.kinds.shape[1] <= width
    for row, column in np.ndindex(cells.kinds.shape):
        inside = np.s_[row * rows : (row + 1) * rows, column * keys : (column + 1) * keys]
        assert cells.kinds[row, column] == kind_of(seen[inside], diagonal[inside])


@settings(deadline=None, max_examples=40)
@given(MASKS, st.integers(1, 60), SIZES, SIZES)
def test_counts_are_those_of_the_element_mask(mask, length, block_q, block_kv):
    found = coverage(blocks_of(case_of(mask, length), (block_q, block_kv)))
    positions = np.arange(length)
    seen = visible(mask, positions[:, None], positions, length, length)
    on_diagonal = np.eye(length, dtype=bool)
    kinds = [
        kind_of(
            seen[top : top + block_q, left : left + block_kv], on_diagonal[top : top + block_q, left : left + block_kv]
        )
        for top in range(0, length, block_q)
        for left in range(0, length, block_kv)
    ]
    assert found.full == kinds.count(Kind.FULL)
    assert found.partial == kinds.count(Kind.PARTIAL) + kinds.count(Kind.DIAGONAL)
    assert found.diagonal == kinds.count(Kind.DIAGONAL)
    assert found.empty == kinds.count(Kind.EMPTY)
    assert found.visible_pairs == seen.sum()


def test_causal_blocks_are_counted():
    found = coverage(blocks_of(case_of(Mask(pattern="causal"), 1024), (128, 128)))
    assert (found.full, found.partial, found.diagonal, found.empty) == (28, 8, 8, 28)
    assert found.block_density == 36 / 64
    assert found.pair_density == 1025 / 2048
    assert (found.fewest, found.most, found.mean) == (1, 8, 4.5)


def test_a_backward_pass_walks_the_blocks_of_keys():
    mask = Mask(pattern="prefix_lm", prefix_len=512)
    forward, backward = (coverage(blocks_of(case_of(mask, 1024, name), (128, 128))) for name in ("forward", "backward"))
    assert (forward.fewest, forward.most) == (4, 8)
    assert (backward.fewest, backward.most) == (1, 8)


def test_operations_count_two_products_per_pair_forward():
    case = case_of(Mask(), 256, batch_size=2, num_heads_q=3, head_dim_v=32)
    found = coverage(blocks_of(case, (128, 128)))
    assert found.needed_flop == found.executed_flop == 2 * (64 + 32) * 256 * 256 * 2 * 3
    assert found.waste == 0


def test_operations_count_five_products_per_pair_backward():
    found = coverage(blocks_of(case_of(Mask(), 256, "backward", head_dim_v=32), (128, 128)))
    assert found.needed_flop == 2 * (3 * 64 + 2 * 32) * 256 * 256


def test_blocks_are_executed_whole_also_where_the_sequence_ends_inside_one():
    found = coverage(blocks_of(case_of(Mask(), 100), (64, 64)))
    assert found.blocks == 4
    assert found.waste == 1 - 100 * 100 / (128 * 128)


@pytest.mark.parametrize(
    ("thread_blocks", "count", "last"), [(264, 2.0, 1.0), (265, 265 / 132, 1 / 132), (66, 0.5, 0.5)]
)
def test_the_last_wave_may_leave_sms_idle(thread_blocks, count, last):
    waves = Waves(thread_blocks, 132)
    assert (waves.count, waves.last) == (count, last)


def test_listed_blocks_have_no_diagonal():
    mask = Mask(pattern="blocks", block_size=(8, 8), rows=((0,), (1,)))
    found = coverage(blocks_of(case_of(mask, 16), (16, 16)))
    assert (found.partial, found.diagonal) == (1, 0)
