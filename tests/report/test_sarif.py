"""SARIF: valid against the OASIS schema, places that code scanning finds, the pages of the rules."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sarif_kit.validate import validation_errors

from attnctl._version import __version__
from attnctl.report import get_renderer
from attnctl.rules.check import Report, check_profile
from attnctl.rules.finding import Edit, Finding
from attnctl.rules.registry import all_rules, find_rule
from attnctl_kernels.rule import Fix, Severity

RAGGED = Finding(
    code="PAL-B003",
    name="ragged-queries-in-dq",
    severity=Severity.ERROR,
    path="profiles/ranker one.yaml",
    line=6,
    column=12,
    field="problem.seq_len",
    message="seqlen_q=1000 is not a multiple of 256",
    why="the dQ kernel gives each warp group whole tiles",
    fix="seq_len 768 or 1024",
    fixes=(Fix("problem.seq_len", 768, "23.2 % fewer tokens"), Fix("problem.seq_len", 1024)),
    edits=(Edit((6, 12), (6, 16), "768"), None),
    pass_name="backward",
)
SPILLS = replace(
    RAGGED, code="PAL-H003", name="registers-exceeded", severity=Severity.WARNING, why="", fix="", fixes=(), edits=()
)


def sarif(*findings, path="profiles/ranker one.yaml"):
    out = io.StringIO()
    get_renderer("sarif").render([Report(Path(path), None, findings)], out)
    document = json.loads(out.getvalue())
    assert validation_errors(document) == []
    (run,) = document["runs"]
    return run


def test_a_result_has_place_level_message_and_fixes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = sarif(RAGGED)
    assert run["results"] == [
        {
            "ruleId": "PAL-B003",
            "ruleIndex": 0,
            "level": "error",
            "message": {
                "text": "seqlen_q=1000 is not a multiple of 256; the dQ kernel gives each warp group whole tiles. "
                "Fix: seq_len 768 or 1024."
            },
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "profiles/ranker%20one.yaml", "uriBaseId": "%SRCROOT%"},
                        "region": {"startLine": 6, "startColumn": 12},
                    },
                    "logicalLocations": [{"fullyQualifiedName": "problem.seq_len", "kind": "member"}],
                }
            ],
            "fixes": [
                {
                    "description": {"text": "seq_len 768 (23.2 % fewer tokens)"},
                    "artifactChanges": [
                        {
                            "artifactLocation": {"uri": "profiles/ranker%20one.yaml", "uriBaseId": "%SRCROOT%"},
                            "replacements": [
                                {
                                    "deletedRegion": {"startLine": 6, "startColumn": 12, "endLine": 6, "endColumn": 16},
                                    "insertedContent": {"text": "768"},
                                }
                            ],
                        }
                    ],
                }
            ],
            "properties": {
                "fix": "seq_len 768 or 1024",
                "fixes": [
                    {"field": "problem.seq_len", "value": 768, "price": "23.2 % fewer tokens"},
                    {"field": "problem.seq_len", "value": 1024, "price": ""},
                ],
                "pass": "backward",
            },
        }
    ]


def test_the_tool_lists_each_broken_rule_once_with_its_page():
    driver = sarif(SPILLS, RAGGED, RAGGED)["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("attnctl", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["PAL-B003", "PAL-H003"]
    ragged, spills = driver["rules"]
    assert ragged["name"] == "ragged-queries-in-dq"
    assert ragged["shortDescription"]["text"] == "The query tiles of the dQ kernel do not cover the queries evenly."
    assert ragged["defaultConfiguration"] == {"level": "error"}
    assert spills["defaultConfiguration"] == {"level": "warning"}
    assert "**Fix:** Pad to 1024 (2.4 % more tokens) or cut to 768." in ragged["help"]["markdown"]
    assert "\nFix: Pad to 1024 (2.4 % more tokens) or cut to 768." in ragged["help"]["text"]


def test_results_point_at_their_rule():
    run = sarif(SPILLS, RAGGED)
    rules = run["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in run["results"]] == ["PAL-H003", "PAL-B003"]
    assert [each["level"] for each in run["results"]] == ["warning", "error"]


def test_a_finding_about_the_whole_file_has_no_region():
    (result,) = sarif(replace(RAGGED, line=0, column=0))["results"]
    assert "region" not in result["locations"][0]["physicalLocation"]


@pytest.mark.parametrize(
    ("written", "location"),
    [
        ("profiles/a.yaml", {"uri": "profiles/a.yaml", "uriBaseId": "%SRCROOT%"}),
        ("{here}/profiles/./a.yaml", {"uri": "profiles/a.yaml", "uriBaseId": "%SRCROOT%"}),
        ("profiles/50%#ä.yaml", {"uri": "profiles/50%25%23%C3%A4.yaml", "uriBaseId": "%SRCROOT%"}),
        ("a\udcff.yaml", {"uri": "a%FF.yaml", "uriBaseId": "%SRCROOT%"}),
        ("../a.yaml", {"uri": "file://{parent}/a.yaml"}),
        ("/etc/a b.yaml", {"uri": "file:///etc/a%20b.yaml"}),
    ],
)
def test_paths_are_relative_to_the_working_folder_where_they_can_be(tmp_path, monkeypatch, written, location):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    run = sarif(path=written.format(here=here))
    expected = {name: text.format(parent=tmp_path) for name, text in location.items()}
    assert run["artifacts"] == [{"location": expected, "roles": ["analysisTarget"]}]


def test_no_findings_is_a_run_without_results():
    run = sarif()
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


def test_every_rule_of_the_registry_makes_a_valid_log():
    sarif(*(replace(RAGGED, code=code, name=find_rule(code).name) for code in all_rules()))


@given(st.text(), st.text(), st.text(min_size=1).filter(lambda path: "\0" not in path))
def test_any_text_in_a_finding_gives_a_valid_log(message, field, path):
    (result,) = sarif(replace(RAGGED, message=message, field=field, path=path))["results"]
    assert result["message"]["text"].isprintable()


def test_a_real_profile_gives_a_valid_log(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("family: fa4\narch: sm_90\nproblem: {seq_len: 8, num_heads_q: 3, head_dim: 100}\n")
    report = check_profile(path)
    assert report.findings
    out = io.StringIO()
    get_renderer("sarif").render([report], out)
    document = json.loads(out.getvalue())
    assert validation_errors(document) == []
    assert [each["ruleId"] for each in document["runs"][0]["results"]] == [each.code for each in report.findings]
