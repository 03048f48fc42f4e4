"""Block arrays against each other, their problem and its mask."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.cli.app import run
from attnctl.rules.check import check_profile
from attnctl_kernels.block_arrays.lists import grid, survey
from attnctl_kernels.contract import Mask
from attnctl_kernels.masks import block_lists, classify, transpose

NAMES = ("mask_block_cnt", "mask_block_idx", "full_block_cnt", "full_block_idx")
PROFILE = """\
family: fa4
arch: sm_90
passes: {passes}
problem: {{batch_size: 2, seq_len: {length}, num_heads_q: 4, head_dim: 128}}
mask: {mask}
sparse_block: {block}
layout: {{path: a.npz}}
"""


def lists(mask, length, block=128, prefix="", backward=True):
    """The block arrays of a mask, of one batch and head."""
    classes = classify(mask, length, length, block, block)
    sides = {prefix: classes} | ({f"{prefix}bwd_": transpose(classes)} if backward else {})
    return {
        f"{side}{name}": each[None, None]
        for side, its in sides.items()
        for name, each in zip(NAMES, block_lists(its), strict=True)
    }


@pytest.fixture
def codes(tmp_path):
    """The rules that arrays break, each with its last message."""

    def check(arrays, *, length=1000, mask="{pattern: causal}", block="[128, 128]", passes="[forward, backward]"):
        np.savez(tmp_path / "a.npz", **arrays)
        path = tmp_path / "p.yaml"
        path.write_text(PROFILE.format(length=length, mask=mask, block=block, passes=passes), encoding="utf-8")
        return {each.code: each.message for each in check_profile(path).findings}

    return check


MASKS = [
    (Mask(pattern="causal"), "{pattern: causal}"),
    (Mask(pattern="sliding_window", window=300), "{pattern: sliding_window, window: 300}"),
    (Mask(pattern="history_candidate", history_len=700), "{pattern: history_candidate, history_len: 700}"),
    (Mask(pattern="document", document_len=333), "{pattern: document, document_len: 333}"),
    (Mask(pattern="prefix_lm", prefix_len=200), "{pattern: prefix_lm, prefix_len: 200}"),
]


@pytest.mark.parametrize(("mask", "text"), MASKS, ids=lambda each: each if isinstance(each, str) else "")
def test_lists_of_the_mask_are_fine_and_those_of_another_are_not(codes, mask, text):
    assert codes(lists(mask, 1000), mask=text) == {}
    for other, other_text in MASKS:
        if other != mask:
            assert "LAYOUT-012" in codes(lists(mask, 1000), mask=other_text)


def test_arrays_of_every_batch_and_head(codes):
    arrays = {name: np.tile(each, (2, 4, *[1] * (each.ndim - 2))) for name, each in lists(MASKS[0][0], 1000).items()}
    assert codes(arrays) == {}
    arrays["full_block_cnt"][1, 3, 7] -= 1
    message = codes(arrays)["LAYOUT-012"]
    assert message == "a.npz: batch 1, head 3, row 7, block 6: seen by mask causal and not listed"


def test_a_mask_of_larger_blocks_is_recognised(codes):
    """Lists built with blocks of 256, read by a kernel that walks blocks of 64."""
    arrays = lists(Mask(pattern="dense"), 65536, 256, backward=False)
    found = codes(arrays, length=65536, mask="{pattern: dense}", block="[64, 64]", passes="[forward]")
    text = " ".join(found.values())
    assert "256" in text
    assert "1024" in text
    assert "LAYOUT-010" in found


def test_two_rows_of_an_unnamed_block_size_are_ambiguous(codes, tmp_path):
    """Lists built with blocks of 192 equal those built with blocks of 128: nothing but the size tells them apart."""
    arrays = lists(Mask(pattern="causal"), 256, 192, backward=False)
    assert codes(arrays, length=256, passes="[forward]") == {}
    path = tmp_path / "p.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("sparse_block: [128, 128]\n", ""), encoding="utf-8")
    messages = {each.code: each.message for each in check_profile(path).findings}
    assert messages["FA4-S013"] == "2 rows over 256 queries fit every query block from 128 to 255"


def test_full_and_partial_lists_may_not_share_a_block(codes):
    arrays = lists(MASKS[0][0], 1024)
    arrays["mask_block_idx"] = np.repeat(arrays["mask_block_idx"], 2, axis=3)
    arrays["mask_block_idx"][0, 0, 3] = [0, 3]
    arrays["mask_block_cnt"][0, 0, 3] = 2
    assert "batch 0, head 0, row 3, block 0: in two lists of the row" in codes(arrays, length=1024)["LAYOUT-008"]


def test_the_order_matters_only_where_the_end_is_ragged(codes):
    arrays = lists(MASKS[0][0], 1024)
    arrays["full_block_idx"] = np.ascontiguousarray(arrays["full_block_idx"])
    arrays["full_block_idx"][0, 0, 7, :7] = [6, 5, 4, 3, 2, 1, 0]
    assert codes(arrays, length=1024) == {}
    assert "LAYOUT-009" in codes(arrays, length=1000)


def test_backward_lists_that_are_not_transposed(codes):
    arrays = lists(MASKS[0][0], 1024)
    wrong = arrays | {f"bwd_{name}": arrays[name] for name in NAMES}
    message = codes(wrong, length=1024)["LAYOUT-011"]
    assert message.startswith("a.npz: batch 0, head 0, row 0, block 1; ")
    assert message.endswith("and 25 more: in the backward lists and not in the forward lists")


def test_lists_for_the_forward_pass_alone_would_give_dense_gradients(codes, tmp_path):
    assert "FA4-B008" in codes(lists(MASKS[0][0], 1024, backward=False), length=1024)
    path = tmp_path / "p.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("a.npz}", "a.npz, backward_arrays: true}"), encoding="utf-8"
    )
    assert check_profile(path).findings == ()


def test_a_family_that_has_the_rule_says_it_once(codes):
    arrays = lists(MASKS[0][0], 1024)
    arrays["mask_block_idx"] = arrays["mask_block_idx"].astype(np.int64)
    assert set(codes(arrays, length=1024)) == {"FA4-S003"}
    arrays = lists(MASKS[0][0], 1024) | {"bwd_full_block_idx": np.zeros((1, 1, 9, 9), np.int32)}
    assert set(codes(arrays, length=1024)) == {"FA4-B007", "LAYOUT-004"}


def test_the_command_line_takes_a_file_of_arrays(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", **lists(MASKS[0][0], 2048))
    path = tmp_path / "p.yaml"
    text = PROFILE.format(length=1024, mask="{pattern: causal}", block="[128, 128]", passes="[forward]")
    path.write_text(text.replace("layout: {path: a.npz}\n", ""), encoding="utf-8")
    assert run(["validate", str(path), "--layout", str(tmp_path / "other.npz")]) == 1
    assert "16" in capsys.readouterr().out
    assert run(["validate", str(path), "--layout", str(tmp_path / "gone.npz")]) == 2


def brute(counts, lists, blocks):
    """What ``survey`` says, in plain Python."""
    width = lists.shape[3]
    bad = outside = repeated = disordered = 0
    for count, row in zip(counts.reshape(-1).tolist(), lists.reshape(counts.size, width).tolist(), strict=True):
        bad += not 0 <= count <= width
        listed = row[: max(0, count)]
        outside += sum(not 0 <= each < blocks for each in listed)
        repeated += len(listed) - len(set(listed))
        disordered += sum(right < left for left, right in pairwise(listed))
    return bad, outside, repeated, disordered


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_survey_counts_what_a_loop_counts(data):
    shape = data.draw(st.tuples(*[st.integers(1, 3)] * 3, st.integers(0, 5)))
    blocks = data.draw(st.integers(1, 6))
    values = st.lists(st.integers(-1, 6), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    index = np.array(data.draw(values), np.int32).reshape(shape)
    if data.draw(st.booleans()):
        index.sort(axis=3)
    size = int(np.prod(shape[:3]))
    count = np.array(data.draw(st.lists(st.integers(-1, 6), min_size=size, max_size=size)), np.int32)
    count = count.reshape(shape[:3])
    found = survey(count, index, blocks)
    each = (found.counts, found.outside, found.repeated, found.disordered)
    assert tuple(places.count for places in each) == brute(count, index, blocks)
    rows = zip(count.ravel(), index.reshape(size, shape[3]), strict=True)
    listed = [value for length, row in rows for value in row[: max(0, length)]]
    assert found.highest == max([-1, *listed])
    for places in each:
        assert (places.count > 0) == bool(places.first)
        assert all(all(0 <= at < size for at, size in zip(place, shape[:3], strict=False)) for place in places.first)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5))
def test_grid_marks_what_is_listed(rows):
    wanted = np.array([[block in row for block in range(6)] for row in rows])
    lists_of_rows = block_lists(np.where(wanted, 2, 0).astype(np.int8))
    np.testing.assert_array_equal(grid(lists_of_rows.full_count, lists_of_rows.full_index, 6), wanted)
