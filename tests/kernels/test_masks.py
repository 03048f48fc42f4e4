import brute_force
import numpy as np
import pytest
from brute_force import mask_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels import masks
from attnctl_kernels.contract import Mask

BLOCKS = st.integers(1, 20)


def brute_classes(seen: np.ndarray, block_q: int, block_kv: int) -> list[list[int]]:
    return [
        [
            masks.FULL if tile.all() else masks.PARTIAL if tile.any() else masks.EMPTY
            for key in range(0, seen.shape[1], block_kv)
            for tile in [seen[row : row + block_q, key : key + block_kv]]
        ]
        for row in range(0, seen.shape[0], block_q)
    ]


@given(mask_cases())
def test_predicate_is_the_definition(case):
    mask, seqlen_q, seqlen_k = case
    q, k = np.arange(seqlen_q)[:, None], np.arange(seqlen_k)[None, :]
    seen = masks.visible(mask, q, k, seqlen_q, seqlen_k)
    assert seen.dtype == bool
    np.testing.assert_array_equal(seen, brute_force.elements(mask, seqlen_q, seqlen_k))


@given(mask_cases())
def test_strips_cover_each_visible_element_once(case):
    mask, seqlen_q, seqlen_k = case
    covered = np.zeros((seqlen_q, seqlen_k), dtype=int)
    for row, height, start, stop in zip(
        *masks.pattern(mask, seqlen_q, seqlen_k).strips().cut(seqlen_q, seqlen_k), strict=True
    ):
        covered[row : row + height, start:stop] += 1
    np.testing.assert_array_equal(covered, brute_force.elements(mask, seqlen_q, seqlen_k))


@given(mask_cases(), BLOCKS, BLOCKS)
@settings(max_examples=300)
def test_classes_and_counts_match_the_element_mask(case, block_q, block_kv):
    mask, seqlen_q, seqlen_k = case
    seen = brute_force.elements(mask, seqlen_q, seqlen_k)
    classes = masks.classify(mask, seqlen_q, seqlen_k, block_q, block_kv)
    assert classes.dtype == np.int8
    assert classes.tolist() == brute_classes(seen, block_q, block_kv)
    assert masks.count_visible(mask, seqlen_q, seqlen_k) == seen.sum()
    assert masks.density(mask, seqlen_q, seqlen_k) == seen.mean()


@given(mask_cases(), BLOCKS, BLOCKS)
def test_classification_in_several_parts_is_the_same(case, block_q, block_kv):
    mask, seqlen_q, seqlen_k = case
    whole = masks.classify(mask, seqlen_q, seqlen_k, block_q, block_kv)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_TILES_AT_ONCE", 3)
        np.testing.assert_array_equal(masks.classify(mask, seqlen_q, seqlen_k, block_q, block_kv), whole)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_block_lists_hold_each_tile_in_order(q_tiles, kv_tiles, data):
    row = st.lists(st.sampled_from([masks.EMPTY, masks.PARTIAL, masks.FULL]), min_size=kv_tiles, max_size=kv_tiles)
    classes = np.array(data.draw(st.lists(row, min_size=q_tiles, max_size=q_tiles)), dtype=np.int8)
    lists = masks.block_lists(classes)
    for kind, count, index in (
        (masks.PARTIAL, lists.partial_count, lists.partial_index),
        (masks.FULL, lists.full_count, lists.full_index),
    ):
        expected = [np.flatnonzero(row == kind).tolist() for row in classes]
        assert count.dtype == index.dtype == np.int32
        assert count.tolist() == [len(keys) for keys in expected]
        assert index.shape == (q_tiles, max(1, *map(len, expected), 0))
        assert index.tolist() == [keys + [0] * (index.shape[1] - len(keys)) for keys in expected]


def test_transposed_lists_walk_key_tiles():
    classes = np.array([[2, 1, 0], [2, 0, 0]], dtype=np.int8)
    lists = masks.block_lists(masks.transpose(classes))
    assert lists.full_count.tolist() == [2, 0, 0]
    assert lists.full_index.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert lists.partial_count.tolist() == [0, 1, 0]


def test_long_sequences_are_exact():
    """Too long for an element mask: 2**34 elements. The numbers follow from the definition by hand."""
    seqlen, block = 131072, 128
    tiles = seqlen // block
    classes = masks.classify(Mask(pattern="causal"), seqlen, seqlen, block, block)
    expected = np.full((tiles, tiles), masks.EMPTY, dtype=np.int8)
    expected[np.tril_indices(tiles)] = masks.FULL
    expected[np.diag_indices(tiles)] = masks.PARTIAL
    np.testing.assert_array_equal(classes, expected)
    assert masks.count_visible(Mask(pattern="causal"), seqlen, seqlen) == seqlen * (seqlen + 1) // 2


def test_history_candidate_of_8k():
    mask = Mask(pattern="history_candidate", history_len=6144)
    classes = masks.classify(mask, 8192, 8192, 128, 128)
    assert (classes[:, :48] == masks.FULL).all()
    assert np.array_equal(classes[48:, 48:], np.eye(16, dtype=np.int8) * masks.PARTIAL)
    assert (classes[:48, 48:] == masks.EMPTY).all()
    assert masks.count_visible(mask, 8192, 8192) == 8192 * 6144 + 2048


@pytest.mark.parametrize(
    ("mask", "lengths", "message"),
    [
        (Mask(pattern="sliding_window"), (8, 8), "mask pattern sliding_window needs window"),
        (Mask(pattern="blocks"), (8, 8), "mask pattern blocks needs block_size and rows"),
        (Mask(pattern="document"), (8, 8), "mask pattern document needs document_len or document_lens"),
        (Mask(pattern="document", document_lens=(3, 4)), (8, 8), "document_lens sum to 7, the sequence length is 8"),
        (
            Mask(pattern="history_candidate", history_len=4),
            (8, 16),
            "mask pattern history_candidate needs seqlen_q = seqlen_k, got 8 and 16",
        ),
        (
            Mask(pattern="blocks", block_size=(4, 4), rows=((0,),)),
            (8, 8),
            "mask.rows lists 1 query blocks; 8 queries in blocks of 4 make 2",
        ),
        (
            Mask(pattern="blocks", block_size=(4, 4), rows=((0,), (1, 2))),
            (8, 8),
            "mask.rows[1] lists key block 2; 8 keys in blocks of 4 make 2",
        ),
    ],
)
def test_a_mask_that_contradicts_its_lengths_is_refused(mask, lengths, message):
    with pytest.raises(ValueError) as raised:
        masks.classify(mask, *lengths, 4, 4)
    assert str(raised.value) == message
