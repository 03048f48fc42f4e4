"""Stop a bad change: rules, tuned files that have gone stale, and, where there is a GPU, a benchmark.

On any machine the profiles are validated, and the tuned profiles beside them held against the profiles, the rules and
the versions that are installed. Where there is a GPU, the configs on disk are measured against those of another commit
(--base), or against the kernel's default, the profile's own config and the stored time. What this machine is too noisy
to tell is inconclusive: it neither passes nor blames the change.

Examples:
  attnctl gate profiles

  attnctl gate profiles --base origin/main --format github --junit gate.xml

Exit code 0: pass; 1: findings or a regression; 2: wrong usage or a missing file; 3: inconclusive; 4: no device, or a
missing package, where one was asked for.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnctl.cli._say import say
from attnctl.cli.options import Profiles, device_name
from attnctl.errors import ExitCode


class Format(StrEnum):
    TEXT = "text"
    GITHUB = "github"
    JSON = "json"


class Measuring(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def gate(  # noqa: PLR0917 - the command's options
    paths: Profiles,
    base: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Compare with what was on disk there, such as origin/main.")
    ] = None,
    base_python: Annotated[
        str | None,
        typer.Option(metavar="PYTHON", help="A Python with the base's packages: its kernels are measured as well."),
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Judge by the time in the tuned profile, too; same device only.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    measure: Annotated[
        Measuring, typer.Option(help="auto: kernels that need a GPU, where there is one.")
    ] = Measuring.AUTO,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="cpu, 0, cuda:0, ...")] = None,
    cycles: Annotated[int, typer.Option(min=1, help="Samples of each config in each of three processes.")] = 50,
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="JUnit XML, too.")] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append a Markdown table. On GitHub it goes to the job's page by itself."),
    ] = None,
) -> ExitCode:
    from attnctl.files import append, write_atomic  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.gate.run import GateOptions, Measure, overall, run  # noqa: PLC0415
    from attnctl.profile.load import profile_paths  # noqa: PLC0415
    from attnctl.report import _gate as report  # noqa: PLC0415

    options = GateOptions(
        strict=strict,
        measure=Measure(measure.value),
        base=base,
        base_python=base_python,
        judge_stored=stored,
        device=device_name(device),
        cycles=cycles,
    )
    gated = []
    for each in run(profile_paths(paths), options, say):
        gated.append(each)
        if output is not Format.JSON:
            lines = report.text(each) if output is Format.TEXT else report.commands(each)
            typer.echo("".join(f"{line}\n" for line in lines), nl=False)
            sys.stdout.flush()
    if output is Format.JSON:
        typer.echo(json.dumps(report.as_json(gated), indent=2))
    if junit is not None:
        write_atomic(junit, report.junit(gated))
    where = summary or os.environ.get(SUMMARY_VARIABLE)
    if where:
        append(Path(where), "".join(f"{line}\n" for line in report.markdown(gated)))
    code = overall(gated)
    say(f"gate: {report.WORDS[code]}")
    return code
