"""Report what sweeps found: one HTML file that opens without a network, and the same facts as CSV and JSON.

Takes journals (*.jsonl, *.jsonl.gz), folders of them, and profiles (*.yaml). A profile brings its masks, and the
journals of its sweeps that are in .attnctl. Sweeps of one family and pass are compared with each other.

Examples:
  attnctl report profiles/ranker-8k.yaml

  attnctl report .attnctl/journals --out report.html --csv report.csv
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.cli._say import say
from attnctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from attnctl.profile.load import Loaded

DEFAULT = Path("report.html")
PROFILES = (".yaml", ".yml")


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PROFILE|JOURNAL", show_default=False, help="What to report on.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file; needs attnctl[report].", show_default=str(DEFAULT)),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="One row per config.", show_default=False)
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="All facts.", show_default=False)
    ] = None,
) -> ExitCode:
    from attnctl.files import write_atomic  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.profile.load import load  # noqa: PLC0415
    from attnctl.report._page.contents import gather  # noqa: PLC0415

    profiles = [load(path) for path in paths if path.suffix in PROFILES]
    if _refused(profiles):
        return ExitCode.FINDINGS
    contents = gather(profiles, _journals(paths))
    files: list[tuple[Path, str]] = []
    if out or not (csv or as_json):
        from attnctl.report._page.page import page  # noqa: PLC0415

        files.append((out or DEFAULT, page(contents)))
    if csv:
        from attnctl.report._page.rows import as_csv  # noqa: PLC0415

        files.append((csv, as_csv(contents.sweeps)))
    if as_json:
        from attnctl.report._page.document import document  # noqa: PLC0415

        files.append((as_json, json.dumps(document(contents), indent=1) + "\n"))
    for path, content in files:
        write_atomic(path, content)
        say(f"written: {path}")
    return ExitCode.OK


def _refused(profiles: Sequence[Loaded]) -> bool:
    """Say on stderr what is wrong with profiles that have no mask to show."""
    from attnctl.report.text import line  # noqa: PLC0415
    from attnctl.rules.check import check_loaded  # noqa: PLC0415
    from attnctl_kernels.rule import Severity  # noqa: PLC0415

    findings = [finding for each in profiles for finding in check_loaded(each).findings]
    for finding in findings:
        typer.echo(line(finding), err=True)
    return any(finding.severity is Severity.ERROR for finding in findings)


def _journals(paths: Sequence[Path]) -> list[Path]:
    """Files as they are; the journals in folders, however deep."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*.jsonl*") if each.name.endswith((".jsonl", ".jsonl.gz")))
            if not inside:
                raise UsageError(f"{path}: there is no journal in this folder", "journals end in .jsonl or .jsonl.gz")
            found += inside
        elif path.suffix not in PROFILES:
            found.append(path)
    return found
