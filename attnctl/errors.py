"""Errors a user can cause. The CLI prints the message and exits with the code: never a traceback."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FINDINGS = 1  # findings, regression, or no working config
    USAGE = 2  # wrong usage or missing file
    INCONCLUSIVE = 3  # noise, unstable machine
    UNAVAILABLE = 4  # no device, missing optional package, worker lost


class AttnctlError(Exception):
    """Base of all errors that end a command. ``hint`` says what to do next.

    By itself it is trouble with a file. That must not look like a finding or a regression.
    """

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AttnctlError):
    exit_code = ExitCode.USAGE


class NoConfigWorks(AttnctlError):
    exit_code = ExitCode.FINDINGS


class Inconclusive(AttnctlError):
    exit_code = ExitCode.INCONCLUSIVE


class Unavailable(AttnctlError):
    exit_code = ExitCode.UNAVAILABLE


class MissingExtra(Unavailable):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed", f"pip install 'attnctl[{extra}]'")
        self.extra = extra
