"""Renderers of findings: exact text, stable JSON, escaped workflow commands."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from attnctl.errors import UsageError
from attnctl.report import get_renderer, renderer_names, summarize
from attnctl.rules.check import Report
from attnctl.rules.finding import Edit, Finding
from attnctl_kernels.rule import Fix, Severity

RAGGED = Finding(
    code="PAL-B003",
    name="ragged-queries-in-dq",
    severity=Severity.ERROR,
    path="profiles/ranker.yaml",
    line=6,
    column=12,
    field="problem.seq_len",
    message="seqlen_q=1000 is not a multiple of 256",
    why="the dQ kernel gives each warp group whole tiles",
    fix="768 or 1024",
    fixes=(Fix("problem.seqlen_q", 768, "23.2 % fewer tokens"), Fix("problem.seqlen_q", 1024)),
    edits=(Edit((6, 12), (6, 16), "768"), None),
    problem="dense-b1-s1000-h8-d128-bfloat16",
    pass_name="backward",
)
SPILLS = replace(RAGGED, code="PAL-H003", severity=Severity.WARNING, why="", fix="", fixes=(), edits=())


def checked(path, findings=(), problem_count=0):
    return Report(Path(path), None, tuple(findings), problem_count)


REPORTS = [checked("profiles/ranker.yaml", (RAGGED, SPILLS), 2), checked("profiles/good.yaml", (), 1)]


def rendered(name, reports=REPORTS):
    out = io.StringIO()
    get_renderer(name).render(reports, out)
    return out.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_formats_are_found_by_walking_the_package():
    assert {"github", "json", "text"} <= set(renderer_names())
    assert not any(name.startswith("_") for name in renderer_names())


def test_unknown_format_names_the_known_ones():
    with pytest.raises(UsageError) as raised:
        get_renderer("xml")
    assert raised.value.message == "unknown format 'xml'"
    assert "github, json" in raised.value.hint


def test_private_modules_are_not_formats():
    with pytest.raises(UsageError):
        get_renderer("_terminal")


def test_text_is_one_line_per_finding():
    assert rendered("text").splitlines() == [
        (
            "profiles/ranker.yaml:6:12: error PAL-B003 seqlen_q=1000 is not a multiple of 256; "
            "the dQ kernel gives each warp group whole tiles. Fix: 768 or 1024."
        ),
        "profiles/ranker.yaml:6:12: warning PAL-H003 seqlen_q=1000 is not a multiple of 256.",
    ]


def test_text_leaves_out_the_place_of_a_finding_about_the_whole_file():
    whole = replace(SPILLS, line=0, column=0)
    assert rendered("text", [checked("a.yaml", (whole,))]).startswith("profiles/ranker.yaml: warning PAL-H003 ")


def test_text_cannot_be_made_to_write_control_characters_or_more_lines():
    hostile = replace(SPILLS, message="unknown key `\x1b[2J\nerror: \u2028fake`", path="a\rb.yaml")
    (line,) = rendered("text", [checked("a", (hostile,))]).split("\n")[:-1]
    assert line == "a\\rb.yaml:6:12: warning PAL-H003 unknown key `\\x1b[2J\\nerror: \\u2028fake`."


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_text_is_coloured_at_a_terminal_only(monkeypatch, environment, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    get_renderer("text").render(REPORTS, out)
    assert ("\x1b[" in out.getvalue()) is coloured
    assert "\x1b[" not in rendered("text")


def test_json_is_the_documented_object():
    document = json.loads(rendered("json"))
    assert list(document) == ["version", "files", "findings", "summary"]
    assert document["version"] == 1
    assert document["files"] == [
        {"path": "profiles/ranker.yaml", "problems": 2, "errors": 1, "warnings": 1},
        {"path": "profiles/good.yaml", "problems": 1, "errors": 0, "warnings": 0},
    ]
    assert document["findings"][0] == {
        "code": "PAL-B003",
        "name": "ragged-queries-in-dq",
        "severity": "error",
        "path": "profiles/ranker.yaml",
        "line": 6,
        "column": 12,
        "field": "problem.seq_len",
        "message": "seqlen_q=1000 is not a multiple of 256",
        "why": "the dQ kernel gives each warp group whole tiles",
        "fix": "768 or 1024",
        "fixes": [
            {
                "field": "problem.seqlen_q",
                "value": 768,
                "price": "23.2 % fewer tokens",
                "edit": {"line": 6, "column": 12, "end_line": 6, "end_column": 16, "text": "768"},
            },
            {"field": "problem.seqlen_q", "value": 1024, "price": "", "edit": None},
        ],
        "problem": "dense-b1-s1000-h8-d128-bfloat16",
        "lengths": [],
        "pass": "backward",
    }
    assert document["summary"] == {"files": 2, "problems": 3, "errors": 1, "warnings": 1}


def test_json_without_findings_is_still_the_object():
    document = json.loads(rendered("json", []))
    assert document == {
        "version": 1,
        "files": [],
        "findings": [],
        "summary": {"files": 0, "problems": 0, "errors": 0, "warnings": 0},
    }


def test_github_command_is_escaped():
    odd = replace(RAGGED, path="a,b:c.yaml", message="100% over\nhere", why="", fix="x: y, z")
    assert rendered("github", [checked("a", (odd,))]) == (
        "::error file=a%2Cb%3Ac.yaml,line=6,col=12,title=PAL-B003 ragged-queries-in-dq::"
        "100%25 over\\nhere. Fix: x: y, z.\n"
    )


def test_github_warns_and_leaves_out_a_missing_place():
    whole = replace(SPILLS, line=0, column=0)
    assert rendered("github", [checked("a", (whole,))]).startswith(
        "::warning file=profiles/ranker.yaml,title=PAL-H003 ragged-queries-in-dq::"
    )


def test_summary_counts_and_agrees_in_number():
    assert str(summarize(REPORTS)) == "2 files, 3 problems: 1 error, 1 warning"
    assert str(summarize([])) == "0 files, 0 problems: 0 errors, 0 warnings"
