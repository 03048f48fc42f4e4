"""What commands tell besides their results: on stderr, and as much of it as the user wants."""

from __future__ import annotations

from enum import IntEnum

import typer


class Verbosity(IntEnum):
    QUIET = -1  # errors alone
    NORMAL = 0
    VERBOSE = 1  # every outcome of a sweep, and the traceback of a bug


_chosen = Verbosity.NORMAL


def choose(verbosity: Verbosity) -> None:
    global _chosen  # noqa: PLW0603 - one command line per process
    _chosen = verbosity


def verbosity() -> Verbosity:
    return _chosen


def say(message: str) -> None:
    if _chosen > Verbosity.QUIET:
        typer.echo(message, err=True)
