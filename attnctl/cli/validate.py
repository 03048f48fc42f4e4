"""Check profiles: can these configs run at these lengths?

No GPU is needed. Each finding names the rule that is broken, the line of the profile, why the rule exists and the
nearest values that work; `attnctl explain CODE` prints the rule's page.

Exit code 0: no errors (with --strict: no warnings either); 1: findings; 2: wrong usage or a missing file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnctl.cli.options import LengthRanges, Profiles, parse_lengths
from attnctl.errors import ExitCode
from attnctl.report import get_renderer, renderer_names, summarize


def validate(
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
        typer.Option(metavar="ARCH", help="Instead of the profile's arch: sm_90, ..."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        str,
        typer.Option(
            "--format", metavar="NAME", help=f"One of: {', '.join(renderer_names())}."
        ),
    ] = "text",
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings fail, too.")
    ] = False,
) -> ExitCode:
    from attnctl.profile.load import load, profile_paths  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.rules.check import check_loaded  # noqa: PLC0415

    renderer = get_renderer(format)
    lengths = parse_lengths(seq_len or ())
    reports = [
        check_loaded(
            load(path, seq_lens=lengths.values, layout=layout),
            arch=arch,
            by_length=lengths.many,
        )
        for path in profile_paths(paths)
    ]
    renderer.render(reports, sys.stdout)
    sys.stdout.flush()  # before the summary, where both streams meet
    summary = summarize(reports)
    typer.echo(summary, err=True)
    failed = summary.errors + (summary.warnings if strict else 0)
    return ExitCode.FINDINGS if failed else ExitCode.OK
