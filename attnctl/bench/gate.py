"""The gate: is a regression larger than what the profile allows, and could this machine have seen it?"""

from __future__ import annotations

import re
from enum import StrEnum

from attnctl.tune.decide import MAX_DROPPED, Comparison, Verdict

_BAND = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")


class GateVerdict(StrEnum):
    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


def parse_band(text: str) -> float:
    """``"5%"`` -> 0.05.

    Raises:
        ValueError: anything but a percentage above 0.
    """
    match = _BAND.fullmatch(text)
    band = float(match[1]) / 100 if match else 0.0
    if band == 0:
        raise ValueError(f"{text!r} is not a percentage above 0%, like 5% or 2.5%")
    return band


def gate(comparison: Comparison, band: float) -> GateVerdict:
    """Judge the candidate's regression against the baseline. Only a whole interval passes or fails."""
    if comparison.floor > band or comparison.dropped > MAX_DROPPED:
        return GateVerdict.INCONCLUSIVE
    if comparison.low > 1 + band and comparison.verdict is Verdict.WORSE:
        return GateVerdict.FAIL
    if comparison.high <= 1 + band:
        return GateVerdict.PASS
    return GateVerdict.INCONCLUSIVE


def explain(comparison: Comparison, band: float) -> str:
    """Why :func:`gate` judged so, for people."""
    interval = f"[{comparison.low:.3f}, {comparison.high:.3f}]"
    if comparison.dropped > MAX_DROPPED:
        return f"the machine is unstable: {comparison.dropped:.0%} of the cycles were dropped"
    if comparison.floor > band:
        return f"this machine's noise of {comparison.floor:.1%} is larger than the band of {band:.1%}"
    verdict = gate(comparison, band)
    if verdict is GateVerdict.INCONCLUSIVE:
        return f"ratio {comparison.ratio:.3f} {interval} neither clears nor exceeds the band of {band:.1%}"
    beyond = "exceeds" if verdict is GateVerdict.FAIL else "is within"
    return f"ratio {comparison.ratio:.3f} {interval} {beyond} the band of {band:.1%}"
