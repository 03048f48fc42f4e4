"""Fixes that work: each is put into the file, read again, and must break nothing that held before."""

import pytest

from attnctl.profile.load import load
from attnctl.profile.model import Profile
from attnctl.profile.problems import problems
from attnctl.rules.check import check_profile
from attnctl.rules.remedies import MOST_TRIED, with_fix
from attnctl_kernels.rule import Fix

PALLAS = """\
family: pallas_mgpu
arch: sm_90
problem: {{seq_len: {length}, num_heads_q: 8, head_dim: 128, dtype: float16}}
config: {{block_q: 64, block_kv: {block_kv}, max_concurrent_steps: 2}}
"""


@pytest.fixture
def check(tmp_path):
    def write(text):
        path = tmp_path / "p.yaml"
        path.write_text(text, encoding="utf-8")
        return {each.code: each for each in check_profile(path).findings}

    return write


def test_a_value_that_breaks_another_rule_is_followed_to_one_that_does_not(check):
    # Shared memory takes blocks up to 192, which do not divide 1024 keys.
    found = check(PALLAS.format(length=1024, block_kv=256))["PAL-H002"]
    assert found.fixes == (Fix("config.block_kv", 128),)


def test_a_value_for_which_there_is_no_room_is_followed_too(check):
    text = "family: fa4\narch: sm_90\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 128}\n"
    found = check(text + "config: {forward: {tile_m: 128, tile_n: 272}}\n")
    assert found["FA4-F006"].fixes == (Fix("config.forward.tile_n", 192),)


def test_a_length_that_is_shorter_than_the_history_is_not_offered(check):
    text = PALLAS.format(length=1000, block_kv=64) + "mask: {pattern: history_candidate, history_len: 960}\n"
    assert [fix.value for fix in check(text)["PAL-F006"].fixes] == [1024]


def test_a_length_of_queries_and_keys_suits_the_blocks_of_both_and_is_priced_as_it_is(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "family: flex\narch: sm_90\npasses: [forward, backward]\nmask: {pattern: dense}\nsparse_block: [63, 192]\n"
        "problem: {seq_len: 4096, num_heads_q: 8, head_dim: 16, dtype: bfloat16}\n",
        encoding="utf-8",
    )
    keys, queries = ([*each.fixes[1:]] for each in check_profile(path).findings if each.code == "FLEX-019")
    # 4224 holds 22 blocks of 192 keys, and ends inside a block of 63 queries.
    assert [(fix.value, fix.price) for fix in keys] == [(4032, "1.6 % fewer tokens"), (4221, "3.1 % more tokens")]
    assert [(fix.value, fix.price) for fix in queries] == [(4095, "0.0 % fewer tokens"), (4158, "1.5 % more tokens")]


def test_where_no_single_value_works_the_rules_are_named(check):
    text = "family: fa4\narch: sm_90\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 64}\n"
    found = check(text + "config: {forward: {mma_registers: 240, producer_registers: 20}}\n")["FA4-R002"]
    assert found.fixes == ()
    assert found.fix == "producer_registers 24, and what FA4-R003 then asks for"


def test_facts_of_a_pattern_go_with_it(check):
    text = "family: fa4\narch: sm_80\nproblem: {seq_len: 4096, num_heads_q: 8, head_dim: 64}\n"
    found = check(text + "mask: {pattern: sliding_window, window: 128}\nsparse_block: [64, 64]\n")
    prices = {fix.value: fix.price for each in found.values() for fix in each.fixes if fix.field == "mask.pattern"}
    assert set(prices.values()) <= {"without window"}


def test_thousands_of_problems_are_not_all_tried(check):
    lengths = [2 * each + 1 for each in range(1, MOST_TRIED)]
    found = check(PALLAS.format(length=lengths, block_kv=64))
    assert {"PAL-F005", "PAL-F006"} <= found.keys()


@pytest.mark.parametrize(
    ("fix", "part", "value"),
    [
        (Fix("problem.seq_len[1]", 256), "seqlen_k", 256),
        (Fix("problem.num_heads_q", 16), "num_heads_kv", 16),
        (Fix("problem.head_dim", 64), "head_dim_v", 64),
        (Fix("mask.pattern", "causal"), "mask", {"pattern": "causal"}),
    ],
)
def test_the_problem_after_a_fix(tmp_path, fix, part, value):
    path = tmp_path / "p.yaml"
    path.write_text(
        "family: fa4\narch: sm_90\nproblem: {seq_len: [128, 130], num_heads_q: 8, head_dim: 128}\n"
        "mask: {pattern: sliding_window, window: 64}\n"
    )
    profile = load(path).profile
    _, changed = with_fix(profile, problems(profile)[1], fix)
    found = getattr(changed, part)
    assert (found.model_dump(exclude_defaults=True) if part == "mask" else found) == value


@pytest.mark.parametrize(
    ("fix", "read"),
    [
        (Fix("config.forward.tile_n", 64), lambda profile: profile.config["forward"] == {"tile_m": 128, "tile_n": 64}),
        (Fix("config.forward.tile_m", None), lambda profile: profile.config["forward"] == {"tile_m": None}),
        (Fix("sparse_block", (64, 128)), lambda profile: profile.sparse_block_of("backward") == (64, 128)),
        (Fix("sparse_block.forward", (64, 64)), lambda profile: profile.sparse_block_of("backward") == (128, 128)),
        (Fix("sparse_block[1]", 64), lambda profile: profile.sparse_block_of("forward") == (128, 64)),
        (Fix("arch", "sm_100"), lambda profile: profile.arch == "sm_100"),
        (Fix("layout.num_blocks", 8), lambda profile: profile.layout.num_blocks == 8),
    ],
)
def test_the_profile_after_a_fix(tmp_path, fix, read):
    path = tmp_path / "p.yaml"
    path.write_text(
        "family: fa4\narch: sm_90\npasses: [forward, backward]\nproblem: {seq_len: 128, num_heads_q: 8, head_dim: 64}\n"
        "sparse_block: [128, 128]\nconfig: {forward: {tile_m: 128}}\nlayout: {num_blocks: 1}\n"
    )
    profile = load(path).profile
    changed, _ = with_fix(profile, problems(profile)[0], fix)
    assert isinstance(changed, Profile)
    assert read(changed)


def test_what_is_not_one_value_is_not_tried(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("family: blocks\nproblem: {seq_len: 128, num_heads_q: 8, head_dim: 64}\n")
    profile = load(path).profile
    assert with_fix(profile, problems(profile)[0], Fix("mask.rows[3]", (0, 1))) is None
    assert with_fix(profile, problems(profile)[0], Fix("layout.num_blocks", 3)) is None
