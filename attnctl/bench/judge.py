"""The gate on one match: which baselines count, and what each says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl.bench.gate import GateVerdict, explain, gate
from attnctl.bench.measured import Measured
from attnctl.bench.medians import compare_stored
from attnctl.bench.plan import BASE
from attnctl.bench.result import Gated, Match
from attnctl.tune.decide import Comparison

_STORED = "the stored time"
_NOTHING = "there is nothing to compare with: run `attnctl tune` first, or name another baseline with --against"


def judged(match: Match, measured: Measured, band: float, *, judge_stored: bool = False) -> Match:
    """``match`` with the gate's verdicts.

    What ran in this job is the baseline: interleaved, or the base's kernels in turn. The stored time is judged only
    where there is nothing better, or where that was asked for: a machine that has become slower as a whole is no
    regression of a config.
    """
    if measured.head_failure:
        return match
    gated = tuple(_baselines(match, band))
    stored, notes = _stored(match, measured)
    if stored and (judge_stored or not gated):
        gated = (*gated, _gated(_STORED, stored, band))
    elif judge_stored:
        reason = notes[0] if notes else "there is none to go by: run `attnctl tune` on this device"
        gated = (*gated, Gated(_STORED, band, GateVerdict.INCONCLUSIVE, reason))
    elif stored:
        notes = (*notes, *_moved(stored, band))
    return replace(
        match,
        notes=(*match.notes, *notes),
        gate=gated or (Gated("nothing", band, GateVerdict.INCONCLUSIVE, _NOTHING),),
    )


def _baselines(match: Match, band: float) -> Iterator[Gated]:
    for row in match.rows:
        if row.comparison and (row.interleaved or row.name == BASE):
            yield _gated(row.name, row.comparison, band)
        elif row.name == BASE and row.failed:  # what did not work cannot have become slower
            yield Gated(BASE, band, GateVerdict.PASS, f"the config there fails: {row.note}")


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
