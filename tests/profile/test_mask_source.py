"""Masks whose facts come from a seed or from a file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.profile.load import load
from attnctl.profile.mask_source import document_lens
from attnctl.profile.problems import problems
from attnctl_kernels.contract import Mask

HEAD = "family: blocks\nproblem: {seq_len: [96, 200], num_heads_q: 2, head_dim: 16}\n"


def loaded(folder, mask, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    path = folder / "p.yaml"
    path.write_text(f"{HEAD}mask: {mask}\n", encoding="utf-8")
    return load(path)


def fault(found):
    (finding,) = found.findings
    assert (finding.code, finding.line) == ("PROFILE009", 3)
    return f"{finding.message} Fix: {finding.fix}"


@given(st.integers(0, 1 << 40), st.integers(1, 5000), st.integers(1, 20_000))
def test_drawn_documents_fill_the_sequence(seed, mean, keys):
    lengths = document_lens(seed, mean, keys)
    assert sum(lengths) == keys
    assert min(lengths) >= 1


def test_drawn_documents_are_the_same_everywhere():
    """Fingerprints of problems, and with them journals and tuned files, depend on it."""
    drawn = (201, 84, 539, 39, 394, 234, 31, 363, 20, 292, 38, 49, 283, 898, 68, 130, 433)
    assert document_lens(7, 512, 4096) == drawn
    mean = sum(document_lens(1, 100, 1_000_000)) / len(document_lens(1, 100, 1_000_000))
    assert 95 < mean < 105


def test_every_length_has_documents_of_its_own(tmp_path):
    found = loaded(tmp_path, "{pattern: document, document_len: 40, seed: 3, causal: true}")
    short, long = problems(found.profile)
    assert short.mask == Mask(pattern="document", document_lens=document_lens(3, 40, 96), causal=True)
    assert sum(long.mask.document_lens) == 200
    assert type(long.mask) is Mask


def test_documents_from_a_file(tmp_path):
    found = loaded(tmp_path, "{pattern: document, path: d.json}", d={"document_lens": [60, 36]})
    short, _ = problems(found.profile)
    assert short.mask == Mask(pattern="document", document_lens=(60, 36))


def test_blocks_from_a_file(tmp_path):
    rows = [[0], [], [0, 2]]
    found = loaded(tmp_path, "{pattern: blocks, path: b.json}", b={"block_size": [32, 32], "rows": rows})
    short, _ = problems(found.profile)
    assert short.mask == Mask(pattern="blocks", block_size=(32, 32), rows=((0,), (), (0, 2)))


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("{pattern: causal, seed: 3}", "there is no mean for them"),
        ("{pattern: document, seed: 3}", "there is no mean for them"),
        ("{pattern: causal, path: d.json}", "pattern causal takes nothing from a file"),
        ("{pattern: document, path: d.json, document_len: 3}", "document_len beside it says the same"),
        ("{pattern: document, path: none.json}", "No such file or directory"),
        ("{pattern: document, path: .}", "is not a file"),
        ("{pattern: document, path: broken.json}", "is not JSON"),
        ("{pattern: document, path: deep.json}", "is not JSON"),
        ("{pattern: document, path: list.json}", "does not hold document_lens, and only that"),
        ("{pattern: blocks, path: d.json}", "does not hold block_size and rows, and only that"),
        ("{pattern: document, path: text.json}", "document_lens.1: input should be a valid integer"),
    ],
)
def test_what_makes_no_mask_is_a_finding(tmp_path, mask, said):
    files = {
        "d": {"document_lens": [96]},
        "broken": "{",
        "deep": "[" * 100_000,
        "list": [96],
        "text": {"document_lens": [90, "six"]},
    }
    assert said in fault(loaded(tmp_path, mask, **files))


def test_lengths_that_do_not_fit_are_a_finding_of_the_rules(tmp_path):
    from attnctl.rules.check import check_profile

    loaded(tmp_path, "{pattern: document, path: d.json}", d={"document_lens": [90]})
    codes = {each.code for each in check_profile(Path(tmp_path / "p.yaml")).findings}
    assert codes == {"G104"}
