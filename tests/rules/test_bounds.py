"""Limits of rules, to the last element: one more is a finding, one less is none."""

import pytest

from attnctl.rules.check import check_profile

FILE = "p.yaml"


def codes(folder, problem, mask):
    (folder / FILE).write_text(f"family: blocks\nproblem: {{{problem}}}\nmask: {{{mask}}}\n", encoding="utf-8")
    return {each.code for each in check_profile(folder / FILE).findings}


@pytest.mark.parametrize(
    ("seq_len", "heads", "head_dim", "fits"),
    [(2**24, 1, 128, True), (715_827_883, 3, 1, False)],  # 2**31 and 2**31 + 1 elements
)
def test_offsets_of_32_bits(tmp_path, seq_len, heads, head_dim, fits):
    problem = f"seq_len: {seq_len}, num_heads_q: {heads}, head_dim: {head_dim}"
    assert ("G003" not in codes(tmp_path, problem, "pattern: causal")) is fits


@pytest.mark.parametrize(("last", "fits"), [(1095, False), (1096, True), (1097, False)])
def test_documents_fill_the_sequence(tmp_path, last, fits):
    mask = f"pattern: document, document_lens: [1000, 2000, {last}]"
    assert ("G104" not in codes(tmp_path, "seq_len: 4096, num_heads_q: 2, head_dim: 64", mask)) is fits


@pytest.mark.parametrize(("history", "fits"), [(4096, True), (4097, False)])
def test_history_within_the_sequence(tmp_path, history, fits):
    mask = f"pattern: history_candidate, history_len: {history}"
    assert ("G103" not in codes(tmp_path, "seq_len: 4096, num_heads_q: 2, head_dim: 64", mask)) is fits
