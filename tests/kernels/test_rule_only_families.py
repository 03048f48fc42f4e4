"""The families without a launcher: resource models against worked numbers, and every fix of every rule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Case, Layout, Mask, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.pallas_mgpu.resources import KERNELS
from attnctl_kernels.rule import check

FAMILIES = ("pallas_mgpu", "ranker_fa3", "ranker_fa4", "sglang_fa4")
FORWARD, DQ, DKV = (*KERNELS["forward"], *KERNELS["backward"])


def problem(**changes):
    facts = {
        "batch_size": 1,
        "seqlen_q": 4096,
        "seqlen_k": 4096,
        "num_heads_q": 8,
        "num_heads_kv": 8,
        "head_dim": 128,
        "head_dim_v": 128,
        "dtype": "float16",
    }
    return Problem(**(facts | changes))


def completed(family, problem, pass_name, arch, written, *, sparse_block=None, **facts):
    """A case as the tool makes it: what the profile gives over the kernel's defaults."""
    default = get_family(family).default_config(problem, pass_name, arch, sparse_block)
    version = facts.pop("version", get_family(family).versions[-1])
    config = {**default, **written}
    return Case(family, version, arch, problem, pass_name, config, sparse_block, frozenset(written), **facts)


@pytest.mark.parametrize(
    ("block_q", "block_kv", "smem_bytes", "registers"),
    [(64, 128, 167000, 160), (128, 128, 199768, 320), (64, 256, 298072, 256)],
)
def test_forward_resources(block_q, block_kv, smem_bytes, registers):
    config = {"block_q": block_q, "block_kv": block_kv, "max_concurrent_steps": 2, "compute_wgs_bwd": 1}
    assert FORWARD.smem_bytes(problem(), config) == smem_bytes
    assert FORWARD.registers(problem(), config) == registers
    assert FORWARD.register_limit(config) == 232


@pytest.mark.parametrize(
    ("blocks", "wgs", "dq_bytes", "dkv_bytes"),
    [
        ((64, 64, 64, 64), 2, 133232, 133232),
        ((128, 64, 128, 64), 1, 133200, 165984),
        ((128, 128, 128, 128), 2, 264304, 264304),
    ],
)
def test_backward_shared_memory(blocks, wgs, dq_bytes, dkv_bytes):
    names = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    config = dict(zip(names, blocks, strict=True)) | {"compute_wgs_bwd": wgs, "max_concurrent_steps": 2}
    assert DQ.smem_bytes(problem(), config) == dq_bytes
    assert DKV.smem_bytes(problem(), config) == dkv_bytes


@pytest.mark.parametrize(("wgs", "limit"), [(1, 256), (2, 232), (3, 152)])
def test_backward_register_limits(wgs, limit):
    assert DQ.register_limit({"compute_wgs_bwd": wgs}) == limit


def test_backward_registers():
    config = {"block_q_dkv": 64, "block_kv_dkv": 64, "block_q_dq": 64, "block_kv_dq": 64}
    assert DKV.registers(problem(), config) == 192
    assert DQ.registers(problem(), config) == 128


def test_a_ring_is_never_longer_than_the_tiles_that_it_serves():
    config = {"block_q": 64, "block_kv": 128, "max_concurrent_steps": 8, "compute_wgs_bwd": 1}
    assert FORWARD.steps(problem(seqlen_k=384), config) == 3


def test_ranker_shares_the_rules_and_adds_its_own():
    shared = {rule.code: rule for rule in get_family("pallas_mgpu").rules()}
    ranker = {rule.code: rule for rule in get_family("ranker_fa3").rules()}
    assert ranker.keys() - shared.keys() == {"PAL-F011", *(f"PAL-N00{number}" for number in range(1, 8))}
    assert all(ranker[code] is rule for code, rule in shared.items())


def test_suggested_backward_blocks_pass_every_rule():
    for head_dim in (64, 128, 192):
        whole = problem(head_dim=head_dim, head_dim_v=head_dim)
        case = completed("ranker_fa3", whole, "backward", "sm_90", {}, passes=("forward", "backward"))
        ((rule, violation),) = check(case, get_family("ranker_fa3").rules())
        assert rule.code == "PAL-B002"
        suggested = {
            name: int(value)
            for name, value in (part.split(": ") for part in violation.advice.removeprefix("add ").split(", "))
        }
        mended = replace(case, config={**case.config, **suggested})
        assert [each.code for each, _ in check(mended, get_family("ranker_fa3").rules())] == []


blocks = st.sampled_from([-64, 0, 16, 64, 96, 128, 192, 256, 320])
lengths = st.sampled_from([64, 128, 192, 384, 640, 960, 1000, 1024, 1088, 1152, 4096])
dims = st.sampled_from([32, 64, 96, 128, 192, 256, 320])
masks = st.one_of(
    st.just(Mask()),
    st.just(Mask(pattern="causal")),
    st.builds(Mask, pattern=st.just("history_candidate"), history_len=st.integers(0, 1200)),
)


def problems(draw):
    seqlen = draw(lengths)
    head_dim = draw(dims)
    return problem(
        seqlen_q=seqlen,
        seqlen_k=draw(st.sampled_from([seqlen, draw(lengths)])),
        num_heads_q=draw(st.integers(1, 16)),
        num_heads_kv=draw(st.integers(1, 16)),
        head_dim=head_dim,
        head_dim_v=draw(st.sampled_from([head_dim, 64])),
        dtype=draw(st.sampled_from(["float16", "bfloat16", "float32"])),
        mask=draw(masks),
    )


def pallas(draw, family):
    names = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    written = {name: draw(blocks) for name in names if draw(st.booleans())}
    written |= {"max_concurrent_steps": draw(st.integers(0, 6)), "compute_wgs_bwd": draw(st.integers(0, 3))}
    passes = draw(st.sampled_from([("forward",), ("backward",), ("forward", "backward")]))
    pass_name = draw(st.sampled_from(passes))
    version = draw(st.sampled_from(get_family(family).versions))
    return completed(family, problems(draw), pass_name, "sm_90", written, passes=passes, version=version)


@st.composite
def cases(draw):
    family = draw(st.sampled_from(FAMILIES))
    if family in ("pallas_mgpu", "ranker_fa3"):
        return pallas(draw, family)
    arch = draw(st.sampled_from(get_family(family).arches))
    if family == "sglang_fa4":
        tiles = {name: draw(st.sampled_from([64, 128, 192])) for name in ("tile_m", "tile_n") if draw(st.booleans())}
        pair = draw(
            st.one_of(st.none(), st.tuples(st.sampled_from([64, 96, 128, 256, 384]), blocks.filter(lambda n: n > 0)))
        )
        whole = problems(draw)
        return completed(
            family, whole.model_copy(update={"num_heads_kv": 1}), "forward", arch, tiles, sparse_block=pair
        )
    written = {"qk_norm": draw(st.booleans()), "attn_logit_cap": draw(st.sampled_from([0.0, 30.0]))}
    layout = Layout(draw(st.one_of(st.none(), st.integers(1, 40))), draw(st.one_of(st.none(), lengths)))
    version = draw(st.sampled_from(get_family(family).versions))
    return completed(
        family, problems(draw), "forward", arch, written, sparse_block=(128, 128), layout=layout, version=version
    )


def applied(case, fix):
    """``case`` with the fix in place; None where the case is gone, because its pass is no longer asked for."""
    head, _, name = fix.field.partition(".")
    if head == "passes":
        assert case.pass_name not in fix.value
        return None
    if head == "problem":
        return replace(case, problem=case.problem.model_copy(update={name: fix.value}))
    if head == "mask":
        mask = case.problem.mask.model_copy(update={name: fix.value})
        return replace(case, problem=case.problem.model_copy(update={"mask": mask}))
    if head == "config":
        return replace(case, config={**case.config, name: fix.value})
    if head == "layout":
        return replace(case, layout=replace(case.layout, **{name: fix.value}))
    return replace(case, **{head: fix.value})


@settings(deadline=None, max_examples=400)
@given(cases())
def test_every_fix_makes_its_rule_pass(case):
    for rule, violation in check(case, get_family(case.family).rules()):
        assert violation.fixes or violation.advice, rule.code
        for fix in violation.fixes:
            mended = applied(case, fix)
            left = [each.field for _, each in check(mended, [rule])] if mended else []
            assert violation.field not in left, f"{rule.code}: {violation.message}, {fix}"


@settings(deadline=None, max_examples=100)
@given(cases())
def test_resources_agree_with_the_rules(case):
    over = {each.name for each in get_family(case.family).resources(case) if each.headroom < 0}
    found = {rule.code for rule, _ in check(case, get_family(case.family).rules())}
    assert any(name.startswith("shared memory") for name in over) == ("PAL-H002" in found)
    assert "PAL-H003" not in found or any(name.startswith("registers") for name in over)
