"""One line per finding: ``path:line:col: error CODE fault; why. Fix: values``; of many lengths, a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from attnctl.report import _compiled
from attnctl.report._lengths import length_table
from attnctl.report._terminal import has_colour, one_line, paint
from attnctl.rules.finding import Finding

if TYPE_CHECKING:
    from attnctl.rules.check import Report


def render(reports: Sequence[Report], out: TextIO) -> None:
    colour = has_colour(out)
    for report in reports:
        findings = report.findings
        if report.by_length:
            out.writelines(f"{one_line(each)}\n" for each in length_table(str(report.path), report.by_length))
            findings = report.compilation.findings if report.compilation else ()  # they are about kernels, not lengths
        out.writelines(line(finding, colour=colour) + "\n" for finding in findings)
        out.writelines(f"{one_line(f'{report.path}: {each}')}\n" for each in _compiled.lines(report))


def line(finding: Finding, *, colour: bool = False) -> str:
    place = f":{finding.line}:{finding.column}" if finding.line else ""
    severity = paint(str(finding.severity), str(finding.severity), colour=colour)
    code = paint(finding.code, "strong", colour=colour)
    return f"{one_line(finding.path)}{place}: {severity} {code} {body(finding)}"


def body(finding: Finding) -> str:
    """The fault, why it is one, and what to do: what all formats for people say."""
    text = finding.message
    if finding.why:
        text += f"; {finding.why}"
    text += "."
    if finding.fix:
        text += f" Fix: {finding.fix.rstrip('.')}."
    return one_line(text)
