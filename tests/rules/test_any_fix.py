"""Fixes of random profiles of every family, put into the file as an editor would: each does what it says.

A profile with several faults is mended fix by fix; that ends, and where every finding offers a fix it ends well.
"""

import types
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.profile.scalars import spell
from attnctl.profile.schema import built_in_families
from attnctl.rules.check import check_profile
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity

STEPS = 40
TILES = st.sampled_from([0, 16, 32, 48, 63, 64, 80, 96, 100, 128, 144, 192, 256, 272, 320])
COUNTS = st.sampled_from([1, 2, 3, 5, 8])
LENGTHS = st.sampled_from([1, 64, 100, 128, 500, 1000, 1024, 1088, 1152, 4096, 8192])
BLOCKS = st.tuples(TILES.filter(bool), TILES.filter(bool))
MASKS = st.one_of(
    st.just("{pattern: dense}"),
    st.just("{pattern: causal}"),
    st.sampled_from([64, 500, 1024]).map("{{pattern: sliding_window, window: {}}}".format),
    st.sampled_from([0, 64, 896, 1024, 5000]).map("{{pattern: history_candidate, history_len: {}}}".format),
    st.sampled_from([128, 300]).map("{{pattern: document, document_len: {}}}".format),
)


def values(annotation):
    """What a parameter of a config model may be, by its type."""
    kinds = [each for each in typing.get_args(annotation) or (annotation,) if each is not types.NoneType]
    if bool in kinds:
        return st.booleans()
    if int in kinds:
        return TILES | COUNTS
    if float in kinds:
        return st.sampled_from([0.5, 1.0, 30.0])
    literals = [value for kind in kinds for value in typing.get_args(kind)]
    return st.sampled_from(literals or ["triton", "tanh", "float32"])


def mapping(parts):
    return "{" + ", ".join(f"{name}: {spell(value)}" for name, value in parts.items()) + "}"


@st.composite
def profiles(draw, name):
    family = get_family(name)
    arches = family.arches or ("sm_90",)
    passes = draw(st.sampled_from([family.passes, family.passes[:1], family.passes[-1:]]))
    heads_q, heads_kv = draw(st.sampled_from([(8, 8), (8, 2), (12, 2), (12, 5)]))
    head_dim = draw(st.sampled_from([16, 64, 96, 100, 128, 192, 256, 512]))
    problem = {
        "batch_size": draw(COUNTS),
        "seq_len": draw(LENGTHS),
        "num_heads_q": heads_q,
        "num_heads_kv": heads_kv,
        "head_dim": head_dim,
        "head_dim_v": draw(st.sampled_from([head_dim, head_dim, 64, 128])),
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
    }
    lines = [f"family: {name}", f"arch: {draw(st.sampled_from(arches))}", f"passes: {spell(passes)}"]
    lines += [f"problem: {mapping(problem)}", f"mask: {draw(MASKS)}"]
    if draw(st.booleans()):
        lines.append(f"sparse_block: {spell(draw(BLOCKS))}")
    if draw(st.integers(0, 3)) == 0:
        lines.append(f"layout: {{num_blocks: {draw(COUNTS)}}}")
    configs = {}
    for pass_name in family.passes[:1] if family.flat_config else passes:
        fields = family.config_model(pass_name).model_fields
        names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=5, unique=True))
        configs[pass_name] = mapping({each: draw(values(fields[each].annotation)) for each in names})
    inside = configs[family.passes[0]] if family.flat_config else "{" + ", ".join(map(": ".join, configs.items())) + "}"
    return "\n".join([*lines, f"config: {inside}"]) + "\n"


def edited(text, edit):
    """As an editor would do it."""
    lines = text.splitlines(keepends=True)
    start, end = (sum(map(len, lines[: line - 1])) + column - 1 for line, column in (edit.start, edit.end))
    return text[:start] + edit.text + text[end:]


def errors(findings):
    return {each.code for each in findings if each.severity is Severity.ERROR}


@pytest.mark.parametrize("name", built_in_families())
def test_every_fix_mends_its_finding_and_breaks_nothing(tmp_path, name):
    path = tmp_path / "p.yaml"

    def check(text):
        path.write_text(text, encoding="utf-8")
        return check_profile(path).findings

    @settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
    @given(profiles(name))
    def each(text):
        found = check(text)
        for finding in found:
            assert finding.fix
            for fix, edit in zip(finding.fixes, finding.edits, strict=True):
                if edit is None:
                    continue
                after = check(edited(text, edit))
                assert (finding.code, finding.field) not in {(one.code, one.field) for one in after}, (text, fix)
                surprise = errors(after) - errors(found)
                targets = {"G301", "G302", "G303", "G304", "G305", "G306"}
                assert not surprise or finding.code in targets or fix.price.startswith("without"), (text, fix, surprise)

    each()


@pytest.mark.parametrize("name", built_in_families())
def test_several_findings_are_mended_one_after_the_other(tmp_path, name):
    path = tmp_path / "p.yaml"

    @settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
    @given(profiles(name))
    def each(text):
        for _ in range(STEPS):
            path.write_text(text, encoding="utf-8")
            found = check_profile(path).findings
            edits = [edit for one in found if one.severity is Severity.ERROR for edit in one.edits if edit is not None]
            if not edits:
                break
            text = edited(text, edits[0])
        else:
            raise AssertionError((text, [one.message for one in found]))
        left = [one for one in found if one.severity is Severity.ERROR and one.fixes and any(one.edits)]
        assert left == []

    each()
