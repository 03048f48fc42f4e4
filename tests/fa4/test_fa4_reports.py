"""Public reports of users, as profiles: what `validate` says about them.

The versions in the reports differ from the one that the rules are for: where 4.0.0b36 has changed, the test follows it.
"""

import pytest

from attnctl.rules.check import check_profile

PROFILE = """
family: fa4
arch: {arch}
passes: {passes}
problem: {{batch_size: 1, seqlen_q: {seqlen_q}, num_heads_q: 4, head_dim: {dim}, head_dim_v: {dim_v}, dtype: bfloat16}}
mask: {{pattern: causal}}
{more}
"""


@pytest.fixture
def check(tmp_path):
    def found(dim, dim_v=None, *, arch="sm_90", passes="[forward]", seqlen_q=512, **more):
        path = tmp_path / "profile.yaml"
        lines = "\n".join(f"{name}: {value}" for name, value in more.items())
        text = PROFILE.format(arch=arch, passes=passes, seqlen_q=seqlen_q, dim=dim, dim_v=dim_v or dim, more=lines)
        path.write_text(text, encoding="utf-8")
        return {finding.code: finding for finding in check_profile(path).findings}

    return found


BOTH = "[forward, backward]"


def test_b01_forward_and_backward_want_different_key_blocks(check):
    found = check(192, 128, passes=BOTH, sparse_block="[128, 128]")
    assert set(found) == {"FA4-S021"}
    assert "forward tile_n 128" in found["FA4-S021"].message
    assert "backward tile_n 96" in found["FA4-S021"].message
    assert check(192, 128, sparse_block="[128, 128]") == {}
    # Since the report the forward tile shrinks to the block, so that 96 suits both.
    assert [fix.value for fix in found["FA4-S021"].fixes] == [(128, 96)]
    assert check(192, 128, passes=BOTH, sparse_block="[128, 96]") == {}


def test_b02_head_dim_256_has_its_own_key_block(check):
    found = check(256, sparse_block="[128, 128]")
    assert set(found) == {"FA4-S010"}
    assert "legal at head_dim 256: 16, 32, 48, 64, 80" in found["FA4-S010"].message
    assert found["FA4-S010"].fixes[0].value == (128, 80)
    assert check(256, sparse_block="[128, 80]") == {}
    found = check(256, passes=BOTH, sparse_block="[128, 80]")
    assert set(found) == {"FA4-S021"}
    assert "backward tile_n 64" in found["FA4-S021"].message


def test_b02_head_dim_192_with_the_usual_block(check):
    found = check(192, sparse_block="[128, 128]")
    assert set(found) == {"FA4-S010"}
    assert found["FA4-S010"].fixes[0].value == (128, 112)


def test_b02_a_tile_in_the_profile_is_the_one_that_counts(check):
    given = "{forward: {tile_m: 128, tile_n: 128}}"
    assert set(check(128, sparse_block="[64, 128]", config=given)) == {"FA4-S007"}
    assert set(check(128, sparse_block="[128, 64]", config=given)) == {"FA4-S009"}
    assert check(256, sparse_block="[128, 64]", config="{forward: {tile_n: 64}}") == {}


@pytest.mark.parametrize("block", ["[128, 64]", "[128, 112]"])
def test_b02_the_tile_shrinks_to_smaller_key_blocks(check, block):
    assert check(128, sparse_block=block) == {}


def test_b02_query_blocks_of_64_run_at_half_the_tile(check):
    assert set(check(128, sparse_block="[64, 128]")) == {"FA4-S011"}


def test_b05_blackwell_wants_256_rows(check):
    def blackwell(block, seqlen_q=16384):
        return set(check(128, arch="sm_100", seqlen_q=seqlen_q, sparse_block=block))

    assert blackwell("[128, 128]") == {"FA4-S012"}
    assert blackwell("[256, 128]") == set()
    assert blackwell("[256, 256]") == set()  # 4.0.0b36 splits key blocks
    assert blackwell("[128, 128]", seqlen_q=128) == set()


@pytest.mark.parametrize(
    ("arch", "code"), [("sm_80", "FA4-S016"), ("sm_86", "FA4-S016"), ("sm_89", "FA4-S016"), ("sm_120", "FA4-S017")]
)
def test_b07_no_block_sparsity_on_this_arch(check, arch, code):
    found = check(64, arch=arch, sparse_block="[128, 64]")
    assert set(found) == {code}
    assert f"no block sparsity on {arch}" in found[code].message


def test_b10_two_rows_fit_many_query_blocks(check):
    table = {"seqlen_q": 256, "layout": "{num_blocks: 2}"}
    found = check(128, **table)
    assert set(found) == {"FA4-S013"}
    assert "from 128 to 255" in found["FA4-S013"].message
    assert check(128, sparse_block="[128, 128]", **table) == {}
    tile = "{forward: {tile_m: 128}}"
    assert set(check(128, sparse_block="[192, 128]", config=tile, **table)) == {"FA4-S007"}


def test_seed_0(check):
    config = "{backward: {tile_m: 64, tile_n: 128, subtile_factor: 2}}"
    found = check(128, passes="[backward]", sparse_block="[64, 128]", config=config)
    assert set(found) == {"FA4-B002"}
    assert [fix.value for fix in found["FA4-B002"].fixes] == [(128, 128), 1]
    assert check(128, passes="[backward]", sparse_block="[128, 128]", config=config) == {}


def test_default_tile_that_does_not_assemble(check):
    """head_dim_v above 192 with a small head_dim: the kernel's own tile has three warp groups."""
    assert set(check(64, 256)) == {"FA4-F023"}
    assert check(64, 256, config="{forward: {tile_m: 128, tile_n: 112}}") == {}
