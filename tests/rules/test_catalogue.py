"""The numbering that the rules were first written down in: every code answers, with its severity, messages and numbers.

`catalogue.txt` holds what the kernels print, a code and a message per line, as it was read in their sources and not as
the rules have it. Where a rule goes another way than that catalogue, docs/decisions.md says why.
"""

from pathlib import Path

import pytest

from attnctl.rules.check import check_profile
from attnctl.rules.messages import find_messages
from attnctl.rules.registry import find_rule
from attnctl_kernels.rule import Severity

SIZES = {
    "FA4-F": 22, "FA4-R": 4, "FA4-S": 22, "FA4-B": 23, "FA4-E": 15, "FA4-X": 2,
    "PAL-C": 5, "PAL-F": 11, "PAL-B": 6, "PAL-N": 5, "PAL-H": 3,
    "RFA4-": 11, "RTRI-": 7, "SGL-": 4, "TOK-": 11, "FLEX-": 18,
}  # fmt: skip
CODES = [f"{kind}{number:03}" for kind, size in SIZES.items() for number in range(1, size + 1)]
ALIASES = {"FA4-E005": "G001", "FA4-F001": "G303", "FA4-S001": "LAYOUT-002", "FA4-S005": "G201"}
# What runs, and is slower or not what was written. All others do not run, or compute something else.
WARNINGS = {
    "FA4-F008", "FA4-S011", "FA4-S014", "FA4-B005", "FA4-B016", "FA4-B023", "FA4-E012",
    "PAL-F007", "PAL-F010", "PAL-H003", "RFA4-008", "FLEX-018",
}  # fmt: skip
MESSAGES = [
    line.split(" ", 1) for line in (Path(__file__).parent / "catalogue.txt").read_text(encoding="utf-8").splitlines()
]


def test_the_catalogue_has_169_codes():
    assert len(CODES) == len(set(CODES)) == 169


@pytest.mark.parametrize("code", CODES)
def test_every_code_answers(code):
    rule = find_rule(code)
    assert rule.code == ALIASES.get(code, code)
    assert code == rule.code or code in rule.aliases
    assert rule.severity is (Severity.WARNING if code in WARNINGS else Severity.ERROR)


@pytest.mark.parametrize(("code", "message"), MESSAGES)
def test_every_message_leads_to_its_code(code, message):
    matches = find_messages([f"ValueError: {message.replace('{}', '128')}\n"])
    assert find_rule(code).code in {rule.code for match in matches for rule in match.rules}


HEADS = "num_heads_q: 8"
BLOCKS = "block_q: 64, block_kv: 64, max_concurrent_steps: 2, compute_wgs_bwd: 2"
MLA = "head_dim: 192, head_dim_v: 128"
BACKWARD = "block_q_dkv: 64, block_kv_dkv: 64, block_q_dq: {dq}, block_kv_dq: 64"


def fa4(problem, rest="", arch="sm_90"):
    return f"family: fa4\narch: {arch}\nproblem: {{seq_len: 4096, {HEADS}, {problem}}}\n{rest}\n"


def pallas(seq_len, config, problem="head_dim: 128", passes="forward, backward"):
    return (
        f"family: pallas_mgpu\narch: sm_90\npasses: [{passes}]\n"
        f"problem: {{seq_len: {seq_len}, {HEADS}, {problem}, dtype: float16}}\nconfig: {{{BLOCKS}, {config}}}\n"
    )


def tile(**parameters):
    inside = ", ".join(f"{name}: {str(value).lower()}" for name, value in parameters.items())
    return f"config: {{forward: {{{inside}}}}}"


def sparse(block_q, block_kv, more=""):
    return f"mask: {{pattern: causal}}\nsparse_block: [{block_q}, {block_kv}]\n{more}"


# Code, profile, part of the message, and values that the fixes offer: the worked numbers of the catalogue.
WORKED = [
    ("FA4-F002", fa4("head_dim: 64", tile(tile_n=120), "sm_100"), "tile_n 120", {112, 128}),
    ("FA4-F005", fa4("head_dim: 64", tile(tile_m=96)), "tile_m 96", {64, 128}),
    ("FA4-F005", fa4("head_dim: 64", tile(tile_m=256)), "tile_m 256", {192}),
    ("FA4-F006", fa4("head_dim: 64", tile(tile_m=128, tile_n=272)), "tile_n 272", {256}),
    ("FA4-F006", fa4("head_dim: 64", tile(tile_n=72)), "tile_n 72", {64, 80}),
    ("FA4-F007", fa4("head_dim: 128", tile(tile_m=128, tile_n=208)), "246784", {192}),
    ("FA4-F007", fa4("head_dim: 256", tile(tile_m=128, tile_n=96)), "263168", {80}),
    ("FA4-F010", fa4("head_dim: 64", tile(tile_m=256), "sm_100"), "tile_m 256", {128}),
    ("FA4-F012", fa4("head_dim: 64", tile(tile_n=16), "sm_100"), "tile_n 16", {32}),
    ("FA4-F013", fa4(MLA, tile(tile_n=192, q_stage=1, use_2cta=False), "sm_100"), "247808", {176}),
    ("FA4-F021", fa4("head_dim: 256", "", "sm_120"), "131072", {64}),
    ("FA4-R002", fa4("head_dim: 64", tile(tile_m=128, mma_registers=240, producer_registers=20)), "20", {24}),
    ("FA4-S008", fa4("head_dim: 64", sparse(256, 192), "sm_100"), "192", {(256, 128), (256, 256)}),
    ("FA4-S009", fa4("head_dim: 128", sparse(128, 256, tile(tile_n=128))), "256", {(128, 128)}),
    ("FA4-S010", fa4("head_dim: 256", sparse(128, 128)), "128", {(128, 80)}),
    ("FA4-S012", fa4("head_dim: 128", sparse(128, 128), "sm_100"), "128", {(256, 128)}),
    ("FA4-B003", fa4("head_dim: 64", sparse(64, 128, "passes: [backward]")), "64", {(128, 128)}),
    ("FA4-B004", fa4("head_dim: 192", sparse(128, 128, "passes: [backward]")), "128", {(128, 96)}),
    ("FA4-B006", fa4(MLA, sparse(256, 128, "passes: [backward]"), "sm_100"), "", {(256, 256)}),
    ("FA4-E001", fa4("head_dim: 100"), "head_dim 100", {96, 104}),
    ("FA4-E003", fa4("head_dim: 264", arch="sm_80"), "head_dim 264", {256}),
    ("FA4-E005", fa4("head_dim: 64, num_heads_kv: 5").replace("heads_q: 8", "heads_q: 12"), "12", {10, 4}),
    ("PAL-C001", pallas(1024, "block_q_dq: 64").replace("block_q: 64", "block_q: 96"), "96", {64, 128}),
    ("PAL-C002", pallas(1024, "").replace("steps: 2", "steps: 1"), "1", {2}),
    ("PAL-F004", pallas(1024, "", "head_dim: 96"), "96", {128}),
    ("PAL-F005", pallas(1000, "").replace("block_kv: 64", "block_kv: 128"), "1000", {896, 1024}),
    ("PAL-F006", pallas(1088, "", passes="forward"), "1088", {1024, 1152}),
    ("PAL-B003", pallas(1000, BACKWARD.format(dq=128)), "compute_wgs_bwd=2 = 256", {1024}),
    ("PAL-B003", pallas(1000, BACKWARD.format(dq=64)), "compute_wgs_bwd=2 = 128", {1024}),
    ("PAL-B005", pallas(1000, BACKWARD.format(dq=64)), "1000", {1024}),
    ("PAL-H001", pallas(1280, "").replace("block_kv: 64", "block_kv: 320"), "320", {256}),
    ("PAL-H002", pallas(1024, "").replace("block_kv: 64", "block_kv: 256"), "2980", {128}),
    ("PAL-H003", pallas(1024, "").replace("block_q: 64, block_kv: 64", "block_q: 128, block_kv: 128"), "320", {64}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "part", "values"), WORKED, ids=lambda each: each if each in CODES else "")
def test_worked_numbers(tmp_path, code, text, part, values):
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    found = [each for each in check_profile(path).findings if each.code == find_rule(code).code]
    assert found, [each.code for each in check_profile(path).findings]
    assert any(part in each.message for each in found), [each.message for each in found]
    offered = {fix.value for each in found for fix in each.fixes}
    assert values <= offered
