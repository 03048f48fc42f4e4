"""Check profiles: can these configs run at these lengths?

No GPU is needed. Each finding names the rule that is broken, the line of the profile, why the rule exists and the
nearest values that work; `attnctl explain CODE` prints the rule's page.

With --compile, what breaks no rule is compiled for its arch, which needs the family's packages and no GPU either.

Examples:
  attnctl validate profiles

  attnctl validate profiles/mine.yaml --seq-len 128:8192:128

  attnctl validate profiles --strict --format github

Exit code 0: no errors (with --strict: no warnings either); 1: findings; 2: wrong usage or a missing file;
4 (--compile): a package is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.cli import _complete
from attnctl.cli._say import say
from attnctl.cli.options import LengthRanges, Profiles, parse_lengths
from attnctl.errors import ExitCode, UsageError
from attnctl.report import get_renderer, renderer_names, summarize

if TYPE_CHECKING:
    from attnctl.profile.load import Loaded
    from attnctl.rules.check import Report

COMPILE_DEADLINE_S = 300.0


def validate(  # noqa: PLR0917 - the command's options
    paths: Profiles,
    seq_len: LengthRanges = None,
    layout: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Block arrays to check, too: .npz, .safetensors, .pt or .json.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(metavar="ARCH", help="Instead of the profile's arch: sm_90, ...", autocompletion=_complete.arches),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"One of: {', '.join(renderer_names())}.",
            autocompletion=_complete.finding_formats,
        ),
    ] = "text",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail, too.")] = False,
    compile: Annotated[  # noqa: A002 - the option's name
        bool, typer.Option("--compile", help="Compile the kernels, too: registers, spills, shared memory.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --compile: workers.", show_default="one per core"),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1, help="With --compile: for one kernel.", show_default="300"),
    ] = None,
) -> ExitCode:
    from attnctl.profile.load import load, profile_paths  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.rules.check import check_loaded  # noqa: PLC0415

    if not compile and (jobs is not None or deadline is not None):
        raise UsageError("--jobs and --deadline are about compiling", "add --compile")
    renderer = get_renderer(format)
    lengths = parse_lengths(seq_len or ())
    profiles = (load(path, seq_lens=lengths.values, layout=layout) for path in profile_paths(paths))
    checked = [(loaded, check_loaded(loaded, arch=arch, by_length=lengths.many)) for loaded in profiles]
    reports = _compiled(checked, jobs, deadline) if compile else [report for _, report in checked]
    renderer.render(reports, sys.stdout)
    sys.stdout.flush()  # before the summary, where both streams meet
    summary = summarize(reports)
    say(str(summary))
    failed = summary.errors + (summary.warnings if strict else 0)
    return ExitCode.FINDINGS if failed else ExitCode.OK


def _compiled(checked: Sequence[tuple[Loaded, Report]], jobs: int | None, deadline: float | None) -> list[Report]:
    from attnctl.compile.run import Settings, compile_all  # noqa: PLC0415 - as above

    settings = Settings(jobs, deadline or COMPILE_DEADLINE_S)
    return compile_all(checked, settings, say)
