"""Block lists and predicates against `create_block_mask`, which evaluates every element."""

import numpy as np
import pytest
from flex_runs import MASKS, make_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels import masks
from attnctl_kernels.contract import Mask

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

from attnctl_kernels.flex.launch.block_mask import flex_mask  # noqa: E402 - needs torch's package around it

SIZES = st.sampled_from([16, 32, 48, 64, 100, 128])


def upstream(problem, block):
    seen = masks.visible(
        problem.mask,
        np.arange(problem.seqlen_q)[:, None],
        np.arange(problem.seqlen_k),
        problem.seqlen_q,
        problem.seqlen_k,
    )
    table = torch.from_numpy(seen)
    lengths = (problem.seqlen_q, problem.seqlen_k)
    return flex.create_block_mask(lambda b, h, q, k: table[q, k], None, None, *lengths, device="cpu", BLOCK_SIZE=block)


def assert_same_lists(problem, block):
    ours, theirs = flex_mask(problem, block), upstream(problem, block)
    assert ours.seqlens == tuple(theirs.seq_lengths)
    assert ours.block_size == tuple(theirs.BLOCK_SIZE)
    for name, array in ours.lists.items():
        assert array.dtype == np.int32
        np.testing.assert_array_equal(array, getattr(theirs, name).numpy(), err_msg=name)


@pytest.mark.parametrize("name", sorted(MASKS))
def test_lists_are_those_of_create_block_mask(name):
    for block in ((128, 128), (64, 128), (100, 50)):
        assert_same_lists(make_problem(mask=MASKS[name]), block)


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    block=st.tuples(SIZES, SIZES),
    size=st.integers(1, 150),
    pattern=st.sampled_from(["causal", "sliding_window", "prefix_lm", "document"]),
    causal=st.booleans(),
)
def test_lists_are_those_of_create_block_mask_at_any_length(lengths, block, size, pattern, causal):
    fact = {"sliding_window": "window", "prefix_lm": "prefix_len"}
    facts = {"document_len": size, "causal": causal} if pattern == "document" else {}
    facts |= {fact[pattern]: size} if pattern in fact else {}
    assert_same_lists(make_problem(*lengths, mask=Mask(pattern=pattern, **facts)), block)


@pytest.mark.parametrize("name", sorted(MASKS))
def test_predicate_is_that_of_the_pattern_on_captured_tables(name):
    lengths = {"blocks": (), "history": (300, 300)}.get(name, (300, 500))  # these two say what the lengths are
    problem = make_problem(*lengths, mask=MASKS[name])
    mask = flex_mask(problem, (128, 128))
    tables = [torch.from_numpy(table) for table in mask.tables]
    rows, keys = np.arange(problem.seqlen_q)[:, None], np.arange(problem.seqlen_k)
    seen = mask.sees(torch.from_numpy(rows), torch.from_numpy(keys), tables).numpy()
    expected = masks.visible(problem.mask, rows, keys, problem.seqlen_q, problem.seqlen_k)
    np.testing.assert_array_equal(np.broadcast_to(seen, expected.shape), expected)


def test_a_call_without_a_mask_gets_one_block_as_upstream_does():
    ours = flex_mask(make_problem(mask=Mask()), None)
    theirs = flex._create_empty_block_mask(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1))
    assert (ours.seqlens, ours.block_size) == (tuple(theirs.seq_lengths), tuple(theirs.BLOCK_SIZE))
    for name, array in ours.lists.items():
        np.testing.assert_array_equal(array, getattr(theirs, name).numpy(), err_msg=name)
    assert theirs.full_kv_num_blocks is None


def test_long_sequences_take_no_element_mask():
    mask = flex_mask(make_problem(1 << 17, mask=Mask(pattern="sliding_window", window=1000)), (128, 128))
    assert mask.lists["kv_num_blocks"].sum() + mask.lists["full_kv_num_blocks"].sum() < 10 * 1024
