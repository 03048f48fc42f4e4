"""Whatever fa4 profiles say: no rule raises, and every value that a rule offers makes that rule hold."""

import re
from dataclasses import fields, replace

import pytest
from fa4_cases import CAUSAL, make_case, make_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.profile.model import LayoutSection
from attnctl_kernels.contract import Layout, Mask
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.rule import check

SIZES = (-8, 0, 1, 2, 3, 8, 16, 24, 32, 48, 64, 80, 96, 100, 128, 160, 192, 240, 256, 512, 1000, 1024, 8192)
SIZE = st.sampled_from(SIZES)
OF_TYPE = {"int": SIZE, "bool": st.booleans(), "float": st.sampled_from((-1.0, 0.0, 30.0))}
WORDS = st.sampled_from(("float32", "float64", "int32", "int64", "bfloat16", "sm_90", "sm_100a", "hopper", "/cache"))
DIMS = st.sampled_from((8, 64, 72, 96, 100, 128, 192, 200, 256, 264, 512))
LENGTHS = st.sampled_from((1, 100, 128, 1000, 1024, 4096))
ARRAYS = st.lists(st.sampled_from(("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")), unique=True)


def of_annotation(text):
    """Values for a field: those that it lists, else by the first type that it names."""
    if listed := re.search(r"Literal\[([^]]*)\]", text):
        return st.sampled_from([word.strip("' ") for word in listed[1].split(",")])
    return next((values for name, values in OF_TYPE.items() if name in text), WORDS)


def configs(pass_name):
    model = FAMILY.config_model(pass_name)
    values = {name: of_annotation(str(field.annotation)) for name, field in model.model_fields.items()}
    return st.lists(st.sampled_from(sorted(values)), max_size=6, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: values[name] for name in names})
    )


def layouts():
    values = {each.name: of_annotation(each.type) for each in fields(Layout) if each.name in LayoutSection.model_fields}
    values["out_strides"] = st.lists(SIZE, min_size=1, max_size=3).map(tuple)
    positive = {name: each.filter(lambda x: not isinstance(x, int) or x > 0) for name, each in values.items()}
    return st.none() | st.lists(st.sampled_from(sorted(positive)), max_size=5, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: positive[name] for name in names})
    )


@st.composite
def cases(draw):
    heads, heads_kv = draw(st.sampled_from(((8, 8), (8, 2), (12, 2), (8, 3), (2, 4), (16, 1))))
    problem = make_problem(
        draw(LENGTHS),
        draw(LENGTHS),
        heads=heads,
        heads_kv=heads_kv,
        head_dim=draw(DIMS),
        head_dim_v=draw(DIMS),
        batch_size=draw(st.sampled_from((1, 4))),
        mask=draw(st.sampled_from((Mask(), CAUSAL))),
        varlen=tuple(draw(ARRAYS)) or None,
    )
    pass_name = draw(st.sampled_from(("forward", "backward")))
    block = draw(st.none() | st.tuples(st.sampled_from(SIZES[3:]), st.sampled_from(SIZES[3:])))
    return problem, pass_name, draw(st.sampled_from(FAMILY.arches)), block, draw(configs(pass_name)), draw(layouts())


def case_of(parts):
    problem, pass_name, arch, block, config, layout = parts
    config = {name: value for name, value in config.items() if value is not None}
    case = make_case(problem, pass_name, arch, block, **config)
    return replace(case, layout=Layout(**layout) if layout is not None else None)


def mended(parts, fix):
    """The parts with one value changed; None where a test of one pass cannot say it."""
    problem, pass_name, arch, block, config, layout = parts
    section, _, name = fix.field.partition(".")
    if section == "config":
        config = {**config, name: fix.value}
    elif section == "layout":
        layout = {**(layout or {}), name: fix.value}
    elif section == "sparse_block":
        block = fix.value
    elif section == "mask":
        problem = problem.model_copy(update={"mask": problem.mask.model_copy(update={name: fix.value})})
    elif section == "problem":
        follows = name == "head_dim" and problem.head_dim_v == problem.head_dim  # as in a profile that gives one
        both = {"head_dim_v": fix.value} if follows else {}
        problem = problem.model_copy(update={name: fix.value, **both})
    elif section == "arch":
        arch = fix.value
    else:
        return None
    return problem, pass_name, arch, block, config, layout


def model_of(pass_name, config):
    return FAMILY.config_model(pass_name)(**config)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=150)
@given(cases())
def test_no_rule_raises_and_every_fix_mends(parts):
    case = case_of(parts)
    FAMILY.resources(case)
    for rule, violation in list(check(case, FAMILY.rules())):
        assert violation.fixes or violation.advice, rule.code
        assert not violation.message.endswith("."), rule.code
        for fix in violation.fixes:
            other = mended(parts, fix)
            if other is None:
                continue
            model_of(other[1], other[4])
            left = [each.field for found, each in check(case_of(other), FAMILY.rules()) if found.code == rule.code]
            assert violation.field not in left, (rule.code, violation, fix)


@pytest.mark.parametrize("arch", FAMILY.arches)
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_the_kernels_own_choice_has_a_resource_table(arch, pass_name):
    if pass_name == "backward" and arch in ("sm_80", "sm_86", "sm_89"):
        pytest.skip("there is no backward pass")
    case = make_case(make_problem(mask=Mask()), pass_name, arch)
    assert {"shared memory", "tensor memory"} & {each.name for each in FAMILY.resources(case)}
    assert all(0 < each.used <= each.limit for each in FAMILY.resources(case))
