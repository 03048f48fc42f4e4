"""The exit code of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.bench.gate import GateVerdict
from attnctl.bench.result import Match
from attnctl.errors import ExitCode

# Something known to be bad comes first; then what kept us from knowing.
_ORDER = (ExitCode.FINDINGS, ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.INCONCLUSIVE, ExitCode.OK)


def exit_code(match: Match) -> ExitCode:
    verdicts = {each.verdict for each in match.gate}
    if match.rows[0].failed or GateVerdict.FAIL in verdicts:
        return ExitCode.FINDINGS
    if match.unstable or GateVerdict.INCONCLUSIVE in verdicts:
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """One exit code for several profiles."""
    return min(codes, key=_ORDER.index, default=ExitCode.OK)
