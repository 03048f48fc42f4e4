"""Workflow commands: GitHub Actions shows each finding beside the line of the profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from attnctl.report import _compiled
from attnctl.report._terminal import one_line
from attnctl.report.text import body
from attnctl.rules.finding import Finding

if TYPE_CHECKING:
    from attnctl.rules.check import Report


def render(reports: Sequence[Report], out: TextIO) -> None:
    for report in reports:
        out.writelines(command(finding) + "\n" for finding in report.findings)
        path = as_property(str(report.path))
        out.writelines(f"::notice file={path}::{as_data(each)}\n" for each in map(one_line, _compiled.lines(report)))


def command(finding: Finding) -> str:
    properties = {"file": finding.path}
    if finding.line:
        properties |= {"line": str(finding.line), "col": str(finding.column)}
    properties["title"] = f"{finding.code} {finding.name}"
    listed = ",".join(f"{name}={as_property(value)}" for name, value in properties.items())
    return f"::{finding.severity} {listed}::{as_data(body(finding))}"


def as_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def as_property(text: str) -> str:
    return as_data(text).replace(":", "%3A").replace(",", "%2C")
