"""One JSON object, for programs. Fields are only ever added; ``version`` changes if one must go.

``version``
    1.
``files``
    One per profile: ``path``, ``problems`` (how many concrete attention calls it holds), ``errors``, ``warnings``.
``findings``
    ``code``, ``name``, ``severity`` (``error`` or ``warning``), ``path``, ``line`` and ``column`` (from 1; 0: the
    whole file), ``field``, ``message``, ``why``, ``fix``, ``fixes`` (``field``, ``value``, ``price`` each),
    ``problem``, ``lengths`` and ``pass`` (empty where the finding is about all of them).
``summary``
    ``files``, ``problems``, ``errors``, ``warnings``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from attnctl.report import summarize

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
        }
        for report in reports
    ]
    document = {
        "version": VERSION,
        "files": files,
        "findings": [finding.as_dict() for report in reports for finding in report.findings],
        "summary": summarize(reports).as_dict(),
    }
    json.dump(document, out, indent=2)
    out.write("\n")
