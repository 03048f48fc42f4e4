"""SARIF 2.1.0, for code scanning and editors: results with their places, and the pages of the rules that were broken.

Paths are relative to the folder in which attnctl ran (``%SRCROOT%``); a file outside of it has an absolute URI.
``fixes`` of a result are what an editor can apply: each replaces one value, or adds one. ``properties.fixes`` holds
what the JSON format calls ``fixes``, which has those too that are no single edit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from attnctl._version import __version__
from attnctl.report import _compiled
from attnctl.report._terminal import one_line
from attnctl.report.text import body
from attnctl.rules.finding import Finding
from attnctl.rules.pages import markdown, page, paragraph, title
from attnctl.rules.registry import AnyRule, all_rules
from attnctl.rules.wording import fix_sentence

if TYPE_CHECKING:
    from attnctl.rules.check import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
PAGE_WIDTH = 100


def render(reports: Sequence[Report], out: TextIO) -> None:
    findings = [finding for report in reports for finding in report.findings]
    codes = sorted({finding.code for finding in findings})
    run = {
        "tool": {"driver": _driver([all_rules()[code] for code in codes])},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The folder in which attnctl ran."}}},
        "artifacts": [{"location": _location(str(report.path)), "roles": ["analysisTarget"]} for report in reports],
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    if notifications := [each for report in reports for each in _notifications(report)]:
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": notifications}]
    json.dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, out, indent=2)
    out.write("\n")


def _notifications(report: Report) -> Iterator[dict[str, Any]]:
    """What compiling told: notes about a file, which are no results."""
    place = {"physicalLocation": {"artifactLocation": _location(str(report.path))}}
    for each in map(one_line, _compiled.lines(report)):
        yield {"level": "note", "message": {"text": each}, "locations": [place]}


def _driver(rules: Sequence[AnyRule]) -> dict[str, Any]:
    return {
        "name": "attnctl",
        "version": __version__,
        "rules": [_descriptor(each) for each in rules],
    }


def _descriptor(rule: AnyRule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": title(rule)},
        "fullDescription": {"text": paragraph(rule, "What") or title(rule)},
        "help": {"text": "\n".join(page(rule, PAGE_WIDTH)), "markdown": markdown(rule)},
        "defaultConfiguration": {"level": str(rule.severity)},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    fixes = list(_fixes(finding))
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": str(finding.severity),
        "message": {"text": body(finding)},
        "locations": [_place(finding)],
        **({"fixes": fixes} if fixes else {}),
        "properties": dict(_properties(finding)),
    }


def _fixes(finding: Finding) -> Iterator[dict[str, Any]]:
    for fix, edit in zip(finding.fixes, finding.edits, strict=False):
        if edit is not None:
            (line, column), (end_line, end_column) = edit.start, edit.end
            region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
            change = {"deletedRegion": region, "insertedContent": {"text": edit.text}}
            yield {
                "description": {"text": one_line(fix_sentence((fix,)))},
                "artifactChanges": [{"artifactLocation": _location(finding.path), "replacements": [change]}],
            }


def _place(finding: Finding) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _location(finding.path)}
    if finding.line:
        physical["region"] = {"startLine": finding.line, "startColumn": finding.column}
    place: dict[str, Any] = {"physicalLocation": physical}
    if finding.field:
        place["logicalLocations"] = [{"fullyQualifiedName": one_line(finding.field), "kind": "member"}]
    return place


def _properties(finding: Finding) -> Iterator[tuple[str, Any]]:
    facts = finding.as_dict()
    facts["fixes"] = [{name: fix[name] for name in ("field", "value", "price")} for fix in facts["fixes"]]
    yield from ((name, facts[name]) for name in ("fix", "fixes", "problem", "lengths", "pass") if facts[name])


def _location(path: str) -> dict[str, str]:
    """Bytes of a name that are no text are quoted as they are."""
    whole = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links away from what the user named
    root = os.getcwd()  # noqa: PTH109 - text, as above
    if Path(whole).is_relative_to(root):
        return {"uri": quote(os.fsencode(Path(whole).relative_to(root).as_posix())), "uriBaseId": ROOT}
    return {"uri": f"file://{quote(os.fsencode(Path(whole).as_posix()))}"}
