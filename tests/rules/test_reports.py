"""Public bug reports that `validate` can catch, over all families that they concern; `tests/reports.md` lists them all.

Those about one family stand beside its other tests. Each report stands for its kind.
"""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.profile.schema import built_in_families
from attnctl.rules.check import check_profile
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity, nearest_multiples

TESTS = Path(__file__).parents[1]
ROW = re.compile(r"\| (B\d\d) \| .*? \| (.*) \|")
NAMED = re.compile(r"`([\w/]+\.py)::([\w:]+)`")
NUMBERS = (
    1,
    2,
    4,
    5,
    7,
    8,
    10,
    11,
    13,
    14,
    16,
    17,
    19,
    20,
    22,
    23,
    25,
    26,
    28,
    29,
    31,
    32,
    34,
    35,
    37,
    38,
    40,
    41,
    43,
    44,
)
NUMBERS += (46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62)
REPORTS = [f"B{number:02}" for number in NUMBERS]


@pytest.fixture
def check(tmp_path):
    def found(text, **options):
        path = tmp_path / "p.yaml"
        path.write_text(text, encoding="utf-8")
        return {each.code: each for each in check_profile(path, **options).findings}

    return found


def errors(findings):
    return {code for code, each in findings.items() if each.severity is Severity.ERROR}


def test_every_report_is_listed_with_tests_that_exist():
    rows = dict(ROW.findall((TESTS / "reports.md").read_text(encoding="utf-8")))
    assert list(rows) == REPORTS
    for report, cell in rows.items():
        tests = NAMED.findall(cell)
        assert tests or cell.startswith("none: "), report
        for file, name in tests:
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            names = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
            assert set(name.split("::")) <= names, f"{report}: {file}::{name}"


def gpu_profile(family, **problem):
    facts = {"seq_len": 4096, "num_heads_q": 8, "head_dim": 128, "dtype": "bfloat16"} | problem
    arch = next((each for each in ("sm_90", *get_family(family).arches) if each in get_family(family).arches), None)
    listed = ", ".join(f"{name}: {value}" for name, value in facts.items())
    return f"family: {family}\n" + (f"arch: {arch}\n" if arch else "") + f"problem: {{{listed}}}\n"


# Plain PyTorch has no limit, and no source says where a Triton kernel of any size ends.
LIMITED = [name for name in built_in_families() if name not in ("blocks", "ranker_triton")]


@pytest.mark.parametrize("family", LIMITED)
def test_b23_head_dim_filled_with_the_length(check, family):
    text = gpu_profile(family, seq_len=1024, head_dim=1024)
    text += "" if "arch" in text else "arch: sm_90\n"
    found = check(text)
    assert errors(found), found
    assert "are the axes swapped?" in found["G002"].message
    assert "G002" not in check(gpu_profile(family, seq_len=128))


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        (
            (
                "family: fa4\narch: sm_90\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 128}\n"
                "config: {forward: {tile_m: 128, tile_n: 208}}\n"
            ),
            "FA4-F007",
            {"tile_n"},
        ),
        (
            "family: fa4\narch: sm_120\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 256}\n",
            "FA4-F021",
            {"tile_m"},
        ),
        (
            (
                "family: fa4\narch: sm_90\npasses: [backward]\n"
                "problem: {seq_len: 4096, num_heads_q: 8, head_dim: 128}\n"
                "config: {backward: {tile_m: 96, tile_n: 128}}\n"
            ),
            "FA4-B015",
            {"tile_m"},
        ),
        (
            "family: flex\narch: sm_89\nproblem: {seq_len: 2048, num_heads_q: 16, head_dim: 128, dtype: float32}\n",
            "FLEX-021",
            {"BLOCK_M"},
        ),
        (
            (
                "family: pallas_mgpu\narch: sm_90\n"
                "problem: {seq_len: 1024, num_heads_q: 8, head_dim: 128, dtype: float16}\n"
                "config: {block_q: 64, block_kv: 256, max_concurrent_steps: 2}\n"
            ),
            "PAL-H002",
            {"block_kv"},
        ),
        (
            (
                "family: tokamax\narch: sm_90\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 128}\n"
                "config: {forward: {block_q: 64, block_kv: 128, num_stages: 4, persistent: true}}\n"
            ),
            "TOK-005",
            {"num_stages"},
        ),
    ],
)
def test_b22_what_does_not_fit_names_the_knobs_and_values_that_fit(check, text, code, names):
    found = check(text)[code]
    numbers = {int(each.replace(",", "")) for each in re.findall(r"\d[\d,]{4,}", found.message)}
    (available,) = numbers & {101_376, 166_912, 232_448}
    assert max(numbers) > available, found.message
    fields = {fix.field.rpartition(".")[2] for fix in found.fixes}
    assert names <= fields, (fields, found.fix)


@pytest.mark.parametrize(("head_dim", "needed"), [(128, None), (192, "115200"), (256, "147968")])
def test_b25_backward_tiles_stop_fitting_as_head_dim_grows(check, head_dim, needed):
    """The kernels of the report, in Triton, are no family here; the one with fixed backward tiles is fa4 on sm_120."""
    found = check(
        "family: fa4\narch: sm_120\npasses: [backward]\n"
        f"problem: {{seq_len: 4096, num_heads_q: 8, head_dim: {head_dim}}}\n"
    )
    assert ("FA4-B021" in found) is (needed is not None)
    if needed:
        assert needed in found["FA4-B021"].message
        assert "101376" in found["FA4-B021"].message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("family: fa4\narch: sm_120\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 256}\n", "FA4-F021"),
        (
            (
                "family: tokamax\narch: sm_100\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 128}\n"
                "config: {forward: {num_stages: 2}}\n"
            ),
            "TOK-002",
        ),
    ],
)  # fmt: skip
def test_b26_the_kernels_own_default_is_checked_too(check, text, code):
    assert code in errors(check(text))


def test_b29_one_profile_on_two_arches(check):
    text = (
        "family: fa4\narch: sm_90\nproblem: {seq_len: 18200, num_heads_q: 8, head_dim: 128}\n"
        "mask: {pattern: causal}\nsparse_block: [128, 128]\n"
    )
    assert check(text) == {}
    assert set(check(text, arch="sm_100")) == {"FA4-S012"}
    assert set(check(text, arch="sm_89")) == {"FA4-S016"}


def test_b31_mask_of_other_blocks_than_the_kernels(check):
    text = (
        "family: fa4\narch: {arch}\nproblem: {{seq_len: 65536, num_heads_q: 8, head_dim: 128}}\n"
        "mask: {{pattern: causal}}\nsparse_block: [256, {block}]\nconfig: {{forward: {{tile_m: {rows}, tile_n: 64}}}}\n"
    )
    found = check(text.format(arch="sm_90", block=256, rows=64))
    assert errors(found) == {"FA4-S009"}
    assert check(text.format(arch="sm_100", block=256, rows=128)) == {}  # splits key blocks
    assert errors(check(text.format(arch="sm_100", block=96, rows=128))) == {"FA4-S008"}
    rows = (
        "family: fa4\narch: sm_90\nproblem: {seq_len: 65536, num_heads_q: 8, head_dim: 128}\nmask: {pattern: causal}\n"
    )
    found = check(rows + "sparse_block: [64, 128]\nlayout: {num_blocks: 256}\n")["G201"]
    assert "has 256 blocks; the kernel walks 1024" in found.message


@given(st.integers(0, 300), st.sampled_from([16, 64, 80, 128]))
def test_b32_padding_adds_less_than_a_block(length, block):
    near = nearest_multiples(length, block)
    if length % block == 0:
        assert near == () or length == 0
    else:
        assert all(each % block == 0 and each > 0 for each in near)
        assert length < near[-1] < length + block
        assert all(length - block < each < length for each in near[:-1])


@pytest.mark.parametrize(("stride", "fits"), [(9728, False), (1536, True)])
def test_b34_a_view_into_a_wider_tensor(check, stride, fits):
    text = (
        "family: fa4\narch: sm_90\nproblem: {seq_len: 410923, num_heads_q: 16, head_dim: 96}\n"
        f"layout: {{out_strides: [{stride}, 96, 1]}}\n"
    )
    found = check(text)
    assert ("G003" not in found) is fits
    if not fits:
        assert "row" in found["G003"].message
        assert "3997449216" in found["G003"].message
        assert [fix.value for fix in found["G003"].fixes] == [(1536, 96, 1)]


@pytest.mark.parametrize("strides", [None, "[{whole}, 128, 128, 1]", "[128, {batch_rows}, 128, 1]"])
@pytest.mark.parametrize(("batch", "fits"), [(699, True), (700, False)])
def test_b35_the_batch_at_which_an_offset_passes_32_bits(check, batch, fits, strides):
    """By shape, batch by batch, and with the rows of all batches next to each other."""
    text = (
        f"family: fa4\narch: sm_90\nproblem: {{batch_size: {batch}, seq_len: 24000, num_heads_q: 1, head_dim: 128}}\n"
    )
    if strides:
        text += f"layout: {{out_strides: {strides.format(whole=24000 * 128, batch_rows=batch * 128)}}}\n"
    assert ("G003" not in check(text)) is fits


def test_b19_the_order_of_a_block_is_queries_then_keys(check):
    text = "family: flex\narch: sm_90\nproblem: {{seqlen_q: 512, seqlen_k: 1024, num_heads_q: 8, head_dim: 256}}\n{}\n"
    lines = "mask: {{pattern: causal}}\nsparse_block: {}\nlayout: {{num_blocks: {}}}"
    for block in ("[64, 128]", "{q: 64, kv: 128}", "{kv: 128, q: 64}"):
        assert "G201" not in check(text.format(lines.format(block, 8)))
        assert "G201" in check(text.format(lines.format(block, 4)))  # 512 queries in blocks of 128
