"""Measure the configs on disk against the kernel's default, the incumbent or another family.

What is on disk is the tuned config for this device; without one, the profile's own. The incumbent is the config that
the profile gives. Everything is checked against a reference first, then timed in turn, in three fresh processes.

With --gate, a regression beyond the profile's `gate.max_regression` exits with 1, and what this machine is too noisy
to tell with 3. Exit code 4: no device, or a missing package.

Examples:
  attnctl bench profiles/ranker-8k.yaml

  attnctl bench profiles/ranker-8k.yaml --against default --gate
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.cli import _complete
from attnctl.cli._say import say
from attnctl.cli.app import fail
from attnctl.cli.options import Profiles, device_name
from attnctl.errors import AttnctlError, ExitCode

if TYPE_CHECKING:
    from attnctl.rules.finding import Finding


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


class Cache(StrEnum):
    COLD = "cold"
    WARM = "warm"


def bench(
    paths: Profiles,
    *,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            autocompletion=_complete.opponents,
            help="default, incumbent, families; with commas, or repeatable. Without it: default and incumbent.",
        ),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Fail on a regression.")] = False,
    cycles: Annotated[int, typer.Option(min=1, help="Samples of each config in each of three processes.")] = 50,
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cpu, 0, cuda:0, ... Without it: what the family runs on.")
    ] = None,
    cache: Annotated[Cache, typer.Option(help="State of the L2 cache before each sample.")] = Cache.COLD,
    tuned: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where `tune --out` wrote. Without it: beside the profile.")
    ] = None,
) -> ExitCode:
    from attnctl.bench.exit import exit_code, worst  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.bench.plan import DEFAULT, INCUMBENT  # noqa: PLC0415
    from attnctl.bench.session import Options, matches  # noqa: PLC0415
    from attnctl.cli._stopping import stopping_findings  # noqa: PLC0415
    from attnctl.profile.load import load, profile_paths  # noqa: PLC0415
    from attnctl.report import _bench as report  # noqa: PLC0415

    names = [name for each in against or (DEFAULT, INCUMBENT) for name in each.split(",")]
    options = Options(names, gate, cycles, cache.value, device_name(device), tuned)
    found, codes = [], []
    for path in profile_paths(paths):
        loaded = load(path)
        if stopping := stopping_findings(loaded):
            _print_findings(stopping, output)
            codes.append(ExitCode.FINDINGS)
            continue
        _, line, column = loaded.locate("gate.max_regression")
        try:
            for match in matches(loaded, options, say):
                found.append(match)
                codes.append(exit_code(match))
                if output is Format.TEXT:
                    _print((*report.text(match), ""))
                elif output is Format.GITHUB:
                    _print(report.commands(match, (line, column)))
        except AttnctlError as error:
            fail(error.message, error.hint)
            codes.append(error.exit_code)
    if output is Format.JSON:
        _print([json.dumps(report.as_json(found), indent=2)])
    return worst(codes)


def _print_findings(findings: Sequence[Finding], output: Format) -> None:
    from attnctl.report import github, text  # noqa: PLC0415

    for finding in findings:
        if output is Format.GITHUB:
            typer.echo(github.command(finding))
        else:
            typer.echo(text.line(finding), err=True)


def _print(lines: Iterable[str]) -> None:
    """Each match as soon as it is there: a benchmark takes minutes."""
    for line in lines:
        typer.echo(line)
    sys.stdout.flush()
