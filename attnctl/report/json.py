"""One JSON object, for programs. Fields are only ever added; ``version`` changes if one must go.

``version``
    1.
``files``
    One per profile: ``path``, ``problems`` (how many concrete attention calls it holds), ``errors``, ``warnings``.
    With many ``--seq-len`` also ``lengths``: per length ``length``, ``supported`` and ``findings`` (places in the list
    ``findings``).
``findings``
    ``code``, ``name``, ``severity`` (``error`` or ``warning``), ``path``, ``line`` and ``column`` (from 1; 0: the
    whole file), ``field``, ``message``, ``why``, ``fix``, ``fixes`` (``field``, ``value``, ``price``, ``edit``
    each), ``problem``, ``lengths`` and ``pass`` (empty where the finding is about all of them). An ``edit`` puts
    ``text`` in the place of what stands from ``line`` and ``column`` up to ``end_line`` and ``end_column``; null: it is
    not one change.
``summary``
    ``files``, ``problems``, ``errors``, ``warnings``.
``compiled``
    With ``--compile``: per kernel ``path``, ``family``, ``arch``, ``pass``, ``problem`` (the first that runs it),
    ``problems`` (how many do), ``config``, ``sparse_block``, ``outcome`` (``ok`` or what went wrong), ``reason``,
    ``resources`` (``registers``, ``local_bytes``, ``stack_bytes``, ``smem_bytes``, as far as the compiler tells),
    ``seconds``, ``cached``.
``notes``
    With ``--compile``: ``path`` and ``note``, for what was not compiled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TextIO

from attnctl.report import _compiled, summarize
from attnctl.report._lengths import supported

if TYPE_CHECKING:
    from attnctl.rules.check import Report

VERSION = 1


def render(reports: Sequence[Report], out: TextIO) -> None:
    files = [
        {
            "path": str(report.path),
            "problems": report.problem_count,
            "errors": report.errors,
            "warnings": report.warnings,
            **_lengths(report, first),
        }
        for report, first in zip(reports, _first_findings(reports), strict=True)
    ]
    document = {
        "version": VERSION,
        "files": files,
        "findings": [finding.as_dict() for report in reports for finding in report.findings],
        "summary": summarize(reports).as_dict(),
    }
    if any(report.compilation for report in reports):
        document["compiled"] = [each for report in reports for each in _compiled.as_json(report)]
        document["notes"] = [each for report in reports for each in _compiled.notes(report)]
    json.dump(document, out, indent=2)
    out.write("\n")


def _first_findings(reports: Sequence[Report]) -> Iterator[int]:
    """Where each report's findings start in the list of all."""
    return accumulate((len(report.findings) for report in reports[:-1]), initial=0) if reports else iter(())


def _lengths(report: Report, first: int) -> dict[str, object]:
    if report.by_length is None:
        return {}
    index = {id(finding): first + number for number, finding in enumerate(report.findings)}
    rows = [
        {"length": length, "supported": supported(findings), "findings": [index[id(each)] for each in findings]}
        for length, findings in report.by_length.items()
    ]
    return {"lengths": rows}
