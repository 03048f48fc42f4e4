"""JUnit: well-formed whatever a file holds, counts that agree, a case per rule that was asked."""

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.report import get_renderer
from attnctl.rules.check import Report, check_profile
from attnctl.rules.finding import Finding
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity

RAGGED = Finding(
    code="PAL-B003",
    name="ragged-queries-in-dq",
    severity=Severity.ERROR,
    path="a.yaml",
    line=6,
    column=12,
    field="problem.seq_len",
    message="seqlen_q=1000 is not a multiple of 256",
    why="the dQ kernel gives each warp group whole tiles",
    fix="seq_len 768 or 1024",
)
SPILLS = replace(RAGGED, code="PAL-H003", name="registers-exceeded", severity=Severity.WARNING, why="", fix="")

# What the schema of Jenkins' xUnit plugin (junit-10.xsd) lets an element hold, as far as we write it.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "system-out"},
    "failure": set(),
    "system-out": set(),
}

PROFILE = """\
family: ranker_fa3
arch: sm_90
passes: [forward, backward]
problem: {seq_len: 1000, num_heads_q: 8, head_dim: 128}
mask: {pattern: history_candidate, history_len: 896}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, compute_wgs_bwd: 2,
         block_q_dkv: 128, block_kv_dkv: 64, block_q_dq: 128, block_kv_dq: 64}
"""


def junit(*reports):
    out = io.StringIO()
    get_renderer("junit").render(reports, out)
    root = ET.fromstring(out.getvalue())
    for element in root.iter():
        assert set(element.keys()) == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        if element.tag in ("testsuites", "testsuite"):
            assert element.get("tests") == str(len(list(element.iter("testcase"))))
            assert element.get("failures") == str(len(list(element.iter("failure"))))
    return root


def found(*findings, path="a.yaml"):
    return Report(Path(path), None, findings)


@pytest.fixture
def checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def check(text):
        Path("a.yaml").write_text(text)
        return check_profile(Path("a.yaml"))

    return check


def test_an_error_fails_its_case_and_a_warning_is_output():
    root = junit(found(RAGGED, replace(RAGGED, line=9), SPILLS))
    ragged, spills = root.iter("testcase")
    assert (ragged.get("name"), ragged.get("classname")) == ("PAL-B003 ragged-queries-in-dq", "a.yaml")
    failure = ragged.find("failure")
    said = (
        "seqlen_q=1000 is not a multiple of 256; the dQ kernel gives each warp group whole tiles. "
        "Fix: seq_len 768 or 1024."
    )
    assert (failure.get("type"), failure.get("message")) == ("PAL-B003", said)
    assert failure.text.splitlines() == [f"a.yaml:{line}:12: error PAL-B003 {said}" for line in (6, 9)]
    assert spills.find("failure") is None
    assert spills.find("system-out").text == "a.yaml:6:12: warning PAL-H003 seqlen_q=1000 is not a multiple of 256."


def test_rules_that_found_nothing_pass(checked):
    report = checked(PROFILE)
    root = junit(report)
    names = [case.get("name").split()[0] for case in root.iter("testcase")]
    family = get_family("ranker_fa3")
    assert names == sorted(
        rule.code for rule in family.rules() if not rule.versions or family.versions[-1] in rule.versions
    )
    assert len(names) < len(family.rules())  # some are about another version
    failed = {case.get("name").split()[0] for case in root.iter("testcase") if case.find("failure") is not None}
    assert failed == {each.code for each in report.findings if each.severity is Severity.ERROR}
    assert failed > {"PAL-B003"}


def test_rules_of_other_passes_arches_and_versions_are_left_out(checked):
    forward = junit(checked(PROFILE.replace(", backward", "")))
    backward = {rule.code for rule in get_family("ranker_fa3").rules() if rule.passes == ("backward",)}
    assert backward
    assert not backward & {case.get("name").split()[0] for case in forward.iter("testcase")}
    fa4 = "family: fa4\narch: {}\nproblem: {{seq_len: 1024, num_heads_q: 8, head_dim: 128}}\n"
    hopper, blackwell = (
        {case.get("name").split()[0] for case in junit(checked(fa4.format(arch))).iter("testcase")}
        for arch in ("sm_90", "sm_100")
    )
    assert "FA4-F005" in hopper - blackwell
    assert "FA4-E002" in blackwell - hopper


def test_nothing_is_said_to_pass_about_a_target_that_the_family_does_not_know(checked):
    report = checked(PROFILE.replace("sm_90", "sm_61"))
    root = junit(report)
    assert Counter(case.get("name").split()[0] for case in root.iter("testcase")) == Counter(
        {each.code for each in report.findings}
    )


def test_a_file_that_cannot_be_read_as_a_profile_fails(checked):
    root = junit(checked("famly: fa4\n"))
    assert int(root.get("failures")) == int(root.get("tests")) > 0


def test_one_suite_per_file_in_order():
    root = junit(found(RAGGED), found(path="b.yaml"), found(SPILLS, path="c.yaml"))
    assert [suite.get("name") for suite in root] == ["a.yaml", "b.yaml", "c.yaml"]
    assert [suite.get("failures") for suite in root] == ["1", "0", "0"]
    assert (root.get("tests"), root.get("failures")) == ("2", "1")


@given(st.text(), st.text(min_size=1).filter(lambda path: "\0" not in path))
def test_any_text_in_a_finding_gives_well_formed_xml(message, path):
    root = junit(found(replace(RAGGED, message=message, path=path), path=path))
    assert "".join(root.itertext()).replace("\n", "").isprintable()
