"""Numbers at the ends of what a profile can hold: a verdict at once, not a search through all that are smaller."""

import json

import pytest

from attnctl.profile.schema import built_in_families
from attnctl_kernels.families import get_family
from attnctl_kernels.ranker_triton.spec import V1

SECONDS = 60  # a search takes years


def profile(family, heads, config):
    arches = get_family(family).arches
    arch = "" if family == "blocks" else f"arch: {arches[0] if arches and 'sm_90' not in arches else 'sm_90'}\n"
    shape = f"{{seq_len: 4096, num_heads_q: {heads[0]}, num_heads_kv: {heads[1]}, head_dim: 128}}"
    return f"family: {family}\n{arch}problem: {shape}\nmask: {{pattern: causal}}\n{config}\n"


@pytest.mark.parametrize("heads", [(2**40, 5), (5 * 2**40, 2**40), (2**63 - 1, 2**62)])
def test_head_counts(process, write, heads):
    for family in built_in_families():
        write(f"{family}.yaml", profile(family, heads, ""))
    done = process("validate", ".", "--format", "json", seconds=SECONDS)
    assert done.returncode == 1
    grouping = {
        fix["value"]
        for finding in json.loads(done.stdout)["findings"]
        for fix in finding["fixes"]
        if fix["field"] == "problem.num_heads_kv" and "is not a multiple of num_heads_kv" in finding["message"]
    }
    assert all(heads[0] % each == 0 for each in grouping)


def test_stages(process, write):
    config = f"config: {{block_q: 64, block_kv: 128, max_concurrent_steps: {2**63 - 1}}}"
    for family in ("pallas_mgpu", "ranker_fa3"):
        write(f"{family}.yaml", profile(family, (8, 8), config))
    done = process("validate", ".", seconds=SECONDS)
    assert done.returncode == 1
    assert "max_concurrent_steps 3" in done.stdout


def test_blocks_and_lengths(process, write):
    huge = 2**62
    pallas = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    configs = {
        "pallas_mgpu": ", ".join(f"{name}: {huge}" for name in pallas) + ", max_concurrent_steps: 2",
        "tokamax": f"forward: {{block_q: {huge}, block_kv: {huge}, num_stages: {huge}, num_tma_splits: {huge}}}",
        "flex": f"num_stages: {huge}",
        "ranker_triton": "block_q: 64, block_k: 96",
    }
    for family, config in configs.items():
        version = f"\nversion: {V1}" if family == "ranker_triton" else ""
        text = profile(family, (8, 8), f"config: {{{config}}}{version}").replace(
            "seq_len: 4096", f"seq_len: {2**62 - 1}"
        )
        write(f"{family}.yaml", text)
    done = process("validate", ".", seconds=SECONDS)
    assert done.returncode == 1
    assert f"of {2**62 - 1} rows miss keys" in done.stdout


@pytest.mark.parametrize("arch", get_family("fa4").arches)
def test_fa4(process, write, arch):
    names = get_family("fa4").config_model("backward").model_fields
    forward = "tile_m: 64, tile_n: 4611686018427387904, page_size: 4611686018427387904"
    backward = ", ".join(f"{name}: {2**62}" for name in ("tile_m", "tile_n", "num_wg", "num_stages_Q") if name in names)
    text = profile("fa4", (8, 8), f"config: {{forward: {{{forward}}}, backward: {{{backward}}}}}")
    text = text.replace("sm_90", arch).replace("head_dim: 128", "head_dim: 65535")
    assert process("validate", write("a.yaml", text + "passes: [forward, backward]"), seconds=SECONDS).returncode == 1


def test_a_head_size_beyond_all_kernels(attnctl, write):
    done = attnctl(
        "validate", write("a.yaml", profile("fa4", (8, 8), "").replace("head_dim: 128", f"head_dim: {2**40}"))
    )
    assert "PROFILE005 `problem.head_dim` is 1099511627776, must be at most 65536" in done.stdout


@pytest.mark.parametrize(
    ("mask", "offered"),
    [("dense", [1536]), ("causal", [])],  # lists of blocks: the tile of 2048 rows is none of their 128 (FLEX-008)
)
def test_few_queries_get_the_next_head_count_that_flex_can_decode_with(attnctl, write, mask, offered):
    text = profile("flex", (3 * 2**20, 2**10), "").replace("seq_len: 4096", "seqlen_q: 1, seqlen_k: 4096")
    path = write("decode.yaml", text.replace("pattern: causal", f"pattern: {mask}"))
    found = [
        each
        for each in json.loads(attnctl("validate", path, "--format", "json").stdout)["findings"]
        if "main kernel" in each["message"]
    ]
    assert [
        fix["value"] for each in found for fix in each["fixes"] if fix["field"] == "problem.num_heads_kv"
    ] == offered
    assert len(found) == 1
