"""What `attnctl gate` found, as text, workflow commands, JSON, JUnit and a Markdown summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from attnctl.bench.gate import GateVerdict
from attnctl.bench.result import Match
from attnctl.errors import AttnctlError, ExitCode
from attnctl.gate.run import Gated, overall
from attnctl.report import _bench, github
from attnctl.report import text as plain
from attnctl.report._terminal import one_line

VERSION = 1
WORDS = {
    ExitCode.OK: "pass",
    ExitCode.FINDINGS: "fail",
    ExitCode.USAGE: "error",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.UNAVAILABLE: "unavailable",
}
_COUNTED = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
_MARKS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "⚠️", "unavailable": "⚠️"}


def word(gated: Gated) -> str:
    return WORDS[gated.exit_code]


def text(gated: Gated) -> Iterator[str]:
    yield from map(plain.line, gated.findings)
    for match in gated.matches:
        where = f"{gated.path}: {match.problem} {match.pass_name}"
        yield from (f"{where} against {each.against}: {each.verdict}: {each.reason}" for each in match.gate)
        yield from (f"{where}: note: {note}" for note in match.notes)
        if match.rows[0].failed:
            yield f"{where}: {match.rows[0].name} fails: {match.rows[0].note}"
    if gated.error:
        yield f"{gated.path}: {_told(gated.error)}"
    yield f"{gated.path}: {word(gated)}" + (f" (not measured: {gated.not_measured})" if gated.not_measured else "")


def commands(gated: Gated) -> Iterator[str]:
    """Annotations at the lines of the profile and of its tuned profiles."""
    yield from map(github.command, gated.findings)
    for match in gated.matches:
        yield from _bench.commands(match, gated.place)
    if gated.error:
        yield f"::warning file={github.as_property(str(gated.path))}::{github.as_data(one_line(_told(gated.error)))}"


def as_json(gated: Sequence[Gated]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": "gate",
        "verdict": WORDS[overall(gated)],
        "profiles": [
            {
                "path": str(each.path),
                "verdict": word(each),
                "findings": [finding.as_dict() for finding in each.findings],
                "matches": _bench.as_json(each.matches)["matches"],
                "not_measured": each.not_measured or None,
                "error": each.error.message if each.error else None,
            }
            for each in gated
        ],
    }


def markdown(gated: Sequence[Gated]) -> Iterator[str]:
    """For $GITHUB_STEP_SUMMARY, a comment, or a wiki."""
    verdict = WORDS[overall(gated)]
    yield f"## attnctl gate: {_MARKS[verdict]} {verdict}"
    yield ""
    yield "| profile | verdict | errors | warnings | measured |"
    yield "|---|---|---:|---:|---|"
    for each in gated:
        errors = sum(str(finding.severity) == "error" for finding in each.findings)
        measured = _told(each.error) if each.error else each.not_measured or f"{len(each.matches)} problems"
        cells = (f"`{each.path}`", f"{_MARKS[word(each)]} {word(each)}", errors, len(each.findings) - errors, measured)
        yield _row(*cells)
    if rows := [_match_row(match) for each in gated for match in each.matches]:
        yield ""
        yield "| problem | config on disk | median us | against | ratio | 95 % interval | verdict |"
        yield "|---|---|---:|---|---:|---|---|"
        yield from rows
        yield ""
        yield "A ratio is the time of the config on disk over the time of what it is compared with."
    if findings := [finding for each in gated for finding in each.findings]:
        yield ""
        yield from (f"- `{one_line(plain.line(finding))}`" for finding in findings)


def junit(gated: Sequence[Gated]) -> str:
    """A suite per profile; cases: its rules, its tuned profiles, and each measurement."""
    root = ET.Element("testsuites", {"name": "attnctl gate"})
    for each in gated:
        suite = ET.SubElement(root, "testsuite", {"name": one_line(str(each.path))})
        for name, tuned in (("rules", False), ("tuned profiles", True)):
            case = _case(suite, each, name)
            failing = [finding for finding in each.failing if (finding.code == "TUNED") is tuned]
            if failing:
                failure = ET.SubElement(case, "failure", {"type": failing[0].code, "message": plain.body(failing[0])})
                failure.text = "\n".join(map(plain.line, failing))
        for match in each.matches:
            _measured(_case(suite, each, f"{match.problem} {match.pass_name} on {match.device_name}"), match)
        if each.error:
            ET.SubElement(_case(suite, each, "measurement"), "error", {"message": one_line(_told(each.error))})
        elif each.not_measured:
            ET.SubElement(_case(suite, each, "measurement"), "skipped", {"message": one_line(each.not_measured)})
    for element in (root, *root):
        for counted, tag in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            element.set(counted, str(sum(1 for _ in element.iter(tag))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _told(error: AttnctlError) -> str:
    """With what to do about it."""
    return f"{error.message}: {error.hint}" if error.hint else error.message


def _case(suite: ET.Element, gated: Gated, name: str) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", {"classname": one_line(str(gated.path)), "name": one_line(name), "time": "0"}
    )


def _measured(case: ET.Element, match: Match) -> None:
    """An inconclusive result is skipped: it neither passes nor blames."""
    head = match.rows[0]
    if head.failed:
        ET.SubElement(case, "failure", {"type": "config-fails", "message": one_line(head.note)})
    for each in match.gate:
        message = one_line(f"against {each.against}: {each.reason}")
        if each.verdict is GateVerdict.FAIL:
            ET.SubElement(case, "failure", {"type": "regression", "message": message})
        elif each.verdict is GateVerdict.INCONCLUSIVE:
            ET.SubElement(case, "skipped", {"message": f"inconclusive: {message}"})


def _match_row(match: Match) -> str:
    head = match.rows[0]
    median = f"{head.latency.median_us:.1f}" if head.latency else "-"
    config = f"{head.name}: {head.candidate}" if head.candidate else f"{head.name}: {head.note}"
    problem = f"{match.problem} {match.pass_name} on {match.device_name}"
    if not match.gate:
        return _row(problem, config, median, "-", "-", "-", "❌ fails" if head.failed else "-")
    against = "<br>".join(each.against for each in match.gate)
    ratios = "<br>".join(f"{each.comparison.ratio:.3f}" if each.comparison else "-" for each in match.gate)
    intervals = "<br>".join(
        f"[{each.comparison.low:.3f}, {each.comparison.high:.3f}]" if each.comparison else "-" for each in match.gate
    )
    verdicts = "<br>".join(f"{_MARKS[str(each.verdict)]} {each.verdict}" for each in match.gate)
    return _row(problem, config, median, against, ratios, intervals, verdicts)


def _row(*cells: object) -> str:
    return f"| {' | '.join(one_line(str(cell)).replace('|', chr(92) + '|') for cell in cells)} |"
