"""JUnit XML, for CI systems that show test results: a test suite per profile, a test case per rule.

The cases are the family's rules for the profile's passes, arch and version, and whatever else found something. A case
fails where its rule found an error, and its text lists every place. A warning fails nothing: it stands in the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO
from xml.etree import ElementTree as ET

from attnctl.profile.model import Profile
from attnctl.report import _compiled
from attnctl.report._terminal import one_line
from attnctl.report.text import body, line
from attnctl.rules.registry import AnyRule, all_rules, target_rules
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Severity

if TYPE_CHECKING:
    from attnctl.rules.check import Report


def render(reports: Sequence[Report], out: TextIO) -> None:
    root = ET.Element("testsuites", {"name": "attnctl validate"})
    root.extend(_suite(report) for report in reports)
    _count(root)
    ET.indent(root)
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(ET.tostring(root, encoding="unicode") + "\n")


def _suite(report: Report) -> ET.Element:
    suite = ET.Element("testsuite", {"name": one_line(str(report.path))})
    suite.extend(_case(report, rule) for rule in _rules(report))
    if compiled := [one_line(each) for each in _compiled.lines(report)]:
        ET.SubElement(suite, "system-out").text = "\n".join(compiled)
    _count(suite)
    return suite


def _case(report: Report, rule: AnyRule) -> ET.Element:
    case = ET.Element(
        "testcase", {"classname": one_line(str(report.path)), "name": f"{rule.code} {rule.name}", "time": "0"}
    )
    found = [each for each in report.findings if each.code == rule.code]
    errors = [each for each in found if each.severity is Severity.ERROR]
    warnings = [each for each in found if each.severity is Severity.WARNING]
    if errors:
        failure = ET.SubElement(case, "failure", {"type": rule.code, "message": body(errors[0])})
        failure.text = "\n".join(map(line, errors))
    if warnings:
        ET.SubElement(case, "system-out").text = "\n".join(map(line, warnings))
    return case


def _rules(report: Report) -> list[AnyRule]:
    """By code. Where the family cannot be asked about the target, only what was found."""
    codes = {each.code for each in report.findings}
    if report.profile is not None and codes.isdisjoint(each.code for each in target_rules()):
        codes |= {each.code for each in _family_rules(report.profile)}
    known = all_rules()
    return [known[code] for code in sorted(codes)]


def _family_rules(profile: Profile) -> Iterator[Rule]:
    family = get_family(profile.family)
    version = profile.version or family.versions[-1]
    for rule in family.rules():
        if (
            not set(rule.passes).isdisjoint(profile.passes)
            and (not rule.arches or profile.arch in rule.arches)
            and (not rule.versions or version in rule.versions)
        ):
            yield rule


def _count(element: ET.Element) -> None:
    element.set("tests", str(sum(1 for _ in element.iter("testcase"))))
    element.set("failures", str(sum(1 for _ in element.iter("failure"))))
    element.set("errors", "0")
