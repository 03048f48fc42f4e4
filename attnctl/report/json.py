"""One JSON object, for programs. Fields are only ever added; ``version`` changes if one must go.

``version``
    1.
``files``
    One per profile: ``path``, ``problems`` (how many concrete attention calls it holds), ``errors``, ``warnings``.
``findings``
    ``code``, ``name``, ``severity`` (``error`` or ``warning``), ``path``, ``line`` and ``column`` (from 1; 0: the
    whole file), ``field``, ``message``, ``why``, ``fix``, ``fixes`` (``field``, ``value``, ``price`` each),
    ``problem`` and ``pass``.
``summary``
    ``files``, ``problems``, ``errors``, ``warnings``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from attnctl.report import Report, summarize

VERSION = 1


def render(reports: Sequence[Report], out: TextIO) -> None:
    files = []
    for report in reports:
        counts = summarize([report])
        files.append(
            {
                "path": report.path,
                "problems": counts.problems,
                "errors": counts.errors,
                "warnings": counts.warnings,
            }
        )
    document = {
        "version": VERSION,
        "files": files,
        "findings": [finding.as_dict() for report in reports for finding in report.findings],
        "summary": summarize(reports).as_dict(),
    }
    json.dump(document, out, indent=2)
    out.write("\n")
