"""Numbers at the ends of what a profile can hold: a verdict at once, not a search through all that are smaller."""

import json

import pytest

from attnctl.profile.schema import built_in_families
from attnctl_kernels.families import get_family

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


def test_few_queries_get_the_next_head_count_that_flex_can_decode_with(attnctl, write):
    text = profile("flex", (3 * 2**20, 2**10), "").replace("seq_len: 4096", "seqlen_q: 1, seqlen_k: 4096")
    done = attnctl("validate", write("decode.yaml", text), "--format", "json")
    found = [each for each in json.loads(done.stdout)["findings"] if "main kernel" in each["message"]]
    assert [fix["value"] for each in found for fix in each["fixes"] if fix["field"] == "problem.num_heads_kv"] == [1536]
