"""tokamax: the resource model against upstream's worked numbers, users' reports, and every fix of every rule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity, check
from attnctl_kernels.tokamax.resources import kernels

FAMILY = get_family("tokamax")
MASKS = (
    Mask(),
    Mask(pattern="causal"),
    Mask(pattern="sliding_window", window=256),
    Mask(pattern="history_candidate", history_len=1024),
)


def case_of(arch="sm_90", pass_name="forward", *, mask=MASKS[0], passes=None, written=None, **facts):
    problem = Problem(
        **{
            "batch_size": 1,
            "seqlen_q": 4096,
            "seqlen_k": 4096,
            "num_heads_q": 8,
            "num_heads_kv": 8,
            "head_dim": 128,
            "head_dim_v": facts.get("head_dim", 128),
            "dtype": "bfloat16",
            "mask": mask,
            **facts,
        }
    )
    written = written or {}
    config = {**FAMILY.default_config(problem, pass_name, arch, None), **written}
    given = frozenset(written)
    return Case("tokamax", "1", arch, problem, pass_name, config, None, given, passes or (pass_name,))


def errors(case):
    return {rule.code for rule, _ in check(case, FAMILY.rules()) if rule.severity is Severity.ERROR}


def smem(case):
    return {kernel.name: kernel.smem_bytes(case) for kernel in kernels(case)}


def test_hopper_forward_as_upstream_counts():
    """Q 32768, K and V 131072, O 32768, five barriers."""
    tile = {"block_q": 64, "block_kv": 128, "num_stages": 2, "persistent": True}
    assert smem(case_of(written=tile)) == {"forward": 196608 + 40}
    # not persistent: the output takes the place of Q and K
    assert smem(case_of(written={**tile, "persistent": False})) == {"forward": 196608 - 32768 + 40}
    # training stores two statistics per row; a boolean mask array adds a tile per stage
    assert smem(case_of(written=tile, passes=("forward", "backward"))) == {"forward": 196648 + 2 * 1024}
    masked = case_of(written=tile, mask=MASKS[3])
    assert smem(masked) == {"forward": 196648 + 2 * 128 * 128 + 16}


def test_blackwell_forward_as_upstream_counts():
    tile = {"block_q": 128, "block_kv": 128, "num_stages": 2, "collective": False, "num_tma_splits": 1}
    case = case_of("sm_100", written=tile)
    assert smem(case) == {"forward": 32768 + 65536 + 65536 + 1024 + 1024 + 1200}
    assert [kernel.tmem_columns(case) for kernel in kernels(case)] == [384]


def test_blackwell_backward_as_upstream_counts():
    case = case_of("sm_100", "backward")
    assert smem(case) == {"dQ": 196608 + 8192, "dKV": 196608 + 3072 + 8192}
    assert [kernel.tmem_columns(case) for kernel in kernels(case)] == [384, 512]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_103"])
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("mask", MASKS[:3], ids=lambda mask: mask.pattern)
def test_the_heuristics_choice_is_allowed(arch, pass_name, head_dim, mask):
    assert errors(case_of(arch, pass_name, head_dim=head_dim, mask=mask)) == set()


def test_a_partial_config_has_the_defaults_of_the_class():
    """`Config(block_kv=128)` is block_q 64 and collective: what the heuristics would add does not count."""
    assert "TOK-002" in errors(case_of("sm_100", written={"block_kv": 128}))
    assert errors(case_of("sm_100")) == set()


@pytest.mark.parametrize(
    ("stages", "mask_dims", "wrong"), [(4, 0, False), (5, 0, True), (3, 2, False), (4, 2, True), (4, 1, True)]
)
def test_named_barriers(stages, mask_dims, wrong):
    written = {"block_q": 64, "block_kv": 128, "num_stages": stages, "mask_dims": mask_dims}
    assert ("TOK-006" in errors(case_of(written=written))) is wrong


@pytest.mark.parametrize(
    ("length", "kv_dkv", "kv_dq"),
    [(length, dkv, dq) for length in (1024, 1088, 1152, 1000) for dkv in (64, 128) for dq in (64, 128, 256)],
)
def test_backward_tails_are_those_that_floor_division_leaves(length, kv_dkv, kv_dq):
    padded = next(each for each in range(length, length + kv_dkv) if each % kv_dkv == 0)
    visited = set(range(padded // kv_dq * kv_dq))
    lost = set(range(length)) - visited
    written = {"block_kv_dkv": kv_dkv, "block_kv_dq": kv_dq, "block_q_dkv": 64, "block_q_dq": 128}
    case = case_of("sm_100", "backward", head_dim=64, seqlen_q=1024, seqlen_k=length, written=written)
    assert ("TOK-010" in errors(case)) is bool(lost)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "wrong"),
    [
        (256, "bfloat16", False),
        (320, "bfloat16", True),
        (512, "bfloat16", True),
        (256, "float32", True),
        (1024, "bfloat16", True),
    ],
)
def test_blocks_of_the_triton_backward_do_not_grow_with_the_head(head_dim, dtype, wrong):
    case = case_of("sm_80", "backward", head_dim=head_dim, dtype=dtype, written={"implementation": "triton"})
    found = {rule.code: violation for rule, violation in check(case, FAMILY.rules())}
    assert ("TOK-013" in found) is wrong
    if head_dim == 320:
        assert "padded to 512" in found["TOK-013"].message
    if head_dim == 1024:
        assert "no block size fits" in found["TOK-013"].message


@st.composite
def cases(draw):
    arch = draw(st.sampled_from(FAMILY.arches))
    pass_name = draw(st.sampled_from(["forward", "backward"]))
    blocks = st.sampled_from([32, 64, 96, 128, 192, 256, 512])
    small = st.integers(0, 6)
    if pass_name == "forward":
        options = {
            "block_q": blocks,
            "block_kv": blocks,
            "num_stages": small,
            "split_k": st.integers(0, 4),
            "num_tma_splits": st.integers(0, 5),
            "persistent": st.booleans(),
            "collective": st.booleans(),
            "use_stable_softmax": st.booleans(),
        }
    else:
        options = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), blocks)
        options |= dict.fromkeys(("num_stages", "compute_wgs", "residual_stages"), small)
        options |= dict.fromkeys(("block_m1", "block_n1", "block_m2", "block_n2"), st.sampled_from([16, 32, 64, 128]))
    options |= {
        "implementation": st.sampled_from(["mosaic", "triton"]),
        "mask_dims": st.integers(0, 2),
        "bias_dims": st.integers(0, 2),
    }
    options |= {"dropout": st.booleans(), "precision": st.sampled_from(["BF16_BF16_F32", "DEFAULT"])}
    written = {name: draw(values) for name, values in options.items() if draw(st.booleans())}
    head_dim = draw(st.sampled_from([32, 64, 80, 128, 192, 256, 320, 1024]))
    return case_of(
        arch,
        pass_name,
        mask=draw(st.sampled_from(MASKS)),
        written=written,
        head_dim=head_dim,
        head_dim_v=draw(st.sampled_from([head_dim, 64])),
        dtype=draw(st.sampled_from(["bfloat16", "float32"])),
        num_heads_kv=draw(st.integers(1, 8)),
        seqlen_k=draw(st.sampled_from([1000, 1088, 4096])),
    )


def applied(case, fix):
    head, _, name = fix.field.partition(".")
    if head == "problem":
        return replace(case, problem=case.problem.model_copy(update={name: fix.value}))
    if head == "config":
        config = {key: value for key, value in {**case.config, name: fix.value}.items() if value is not None}
        return replace(case, config=config, given=(case.given | {name}) & config.keys())
    return replace(case, **{head: fix.value})


@settings(deadline=None, max_examples=400)
@given(cases())
def test_every_fix_makes_its_rule_pass(case):
    for rule, violation in check(case, FAMILY.rules()):
        assert violation.fixes or violation.advice, (rule.code, violation.message)
        for fix in violation.fixes:
            left = [each.field for _, each in check(applied(case, fix), [rule])]
            assert violation.field not in left, f"{rule.code}: {violation.message}, {fix}"


@settings(deadline=None, max_examples=150)
@given(cases())
def test_resources_agree_with_the_rules(case):
    over = any(each.headroom < 0 for each in FAMILY.resources(case))
    assert over == bool(errors(case) & {"TOK-005", "TOK-011"})
