"""Say what this machine can do, and what is missing for what.

Every family is listed with its rules (which `attnctl validate` uses) and with what keeps it from being tuned here.

Examples:
  attnctl doctor

  attnctl doctor --format json
"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from attnctl.errors import ExitCode


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def doctor(
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
) -> int:
    from attnctl.machine import abilities, machine  # noqa: PLC0415 - not paid for by --help
    from attnctl.report._doctor import lines  # noqa: PLC0415

    here = machine()
    families = abilities(here.gpus)
    if output is Format.JSON:
        document = {"version": 1, "machine": asdict(here), "families": [asdict(each) for each in families]}
        typer.echo(json.dumps(document, indent=2))
    else:
        for line in lines(here, families):
            typer.echo(line)
    return ExitCode.FINDINGS if any(each.broken for each in families) else ExitCode.OK
