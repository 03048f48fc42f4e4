"""The gate on one match: which baselines count, and what each says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl.bench.gate import GateVerdict, explain, gate
from attnctl.bench.measured import Measured
from attnctl.bench.medians import compare_stored
from attnctl.bench.result import Gated, Match
from attnctl.tune.decide import Comparison

_NOTHING = "there is nothing to compare with: run `attnctl tune` first, or name another baseline with --against"


def judged(match: Match, measured: Measured, band: float) -> Match:
    """``match`` with the gate's verdicts.

    What ran interleaved in this job is the baseline. The stored time is judged only where there is nothing better: a
    machine that has become slower as a whole is no regression of a config.
    """
    if measured.head_failure:
        return match
    gated = tuple(_gated(row.name, row.comparison, band) for row in match.rows if row.comparison and row.interleaved)
    stored, notes = _stored(match, measured)
    if stored and not gated:
        gated = (_gated("the stored time", stored, band),)
    elif stored:
        notes = (*notes, *_moved(stored, band))
    return replace(
        match,
        notes=(*match.notes, *notes),
        gate=gated or (Gated("nothing", band, GateVerdict.INCONCLUSIVE, _NOTHING),),
    )


def _gated(against: str, comparison: Comparison, band: float) -> Gated:
    return Gated(against, band, gate(comparison, band), explain(comparison, band), comparison)


def _stored(match: Match, measured: Measured) -> tuple[Comparison | None, tuple[str, ...]]:
    """Today's time over the stored one, if it was measured under the same policy; or else why not."""
    stored = measured.plan.stored
    if stored is None:
        return None, ()
    if stored.cache != match.cache:
        return None, (f"the stored time is of a {stored.cache} cache: not compared with a {match.cache} one",)
    return compare_stored(measured.medians, stored.median_us, measured.floor), ()


def _moved(stored: Comparison, band: float) -> Iterator[str]:
    if not 1 - band <= stored.ratio <= 1 + band:
        yield (
            f"today's time is {stored.ratio:.3f} times the stored one; the gate goes by the configs that ran beside "
            "it, because a machine can change as a whole"
        )
