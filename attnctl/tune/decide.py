"""From finals to a verdict: which contender is faster, and may it replace the incumbent?

Everything here is a pure function of recorded cycles. A ratio is time of the candidate over time of the baseline:
below one is faster. docs/measurement.md gives the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from attnctl.gpu.protocol import Cycle
from attnctl.tune.resample import Estimate, Resampler

Processes = Sequence[Sequence[Cycle]]

MIN_MARGIN = 0.01  # differences below it are not worth a change of config
MAX_MARGIN = 0.05  # above it the noise is too large to call two configs the same
FLOOR_FACTOR = 2.0  # the slot order alone leaves a bias of about one noise floor
MAX_DROPPED = 0.20
MIN_CYCLES = 10
MIN_CLOCK = 0.75  # of the default SM clock
BAD_THROTTLE = frozenset({"thermal", "power_brake"})  # a power cap is normal under attention load: pairing absorbs it


class Verdict(StrEnum):
    """What the candidate is against the baseline."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against a baseline. All but ``verdict`` and ``dropped`` are ratios or fractions of one."""

    ratio: float  # time of the candidate over time of the baseline
    low: float  # 95 % interval of the ratio
    high: float
    verdict: Verdict
    floor: float  # the largest difference that the A/A pair shows between a kernel and itself
    margin: float  # what a difference must exceed to count
    dropped: float  # share of the cycles that were dropped for the machine's state


@dataclass(frozen=True, slots=True)
class Decision:
    """Which contender to use from now on, and why."""

    winner: str
    vs_incumbent: Mapping[str, Comparison]
    vs_default: Mapping[str, Comparison]
    tie: bool  # the incumbent stays because the best contender is not different from it
    unstable: bool  # too many cycles were dropped: nothing may be concluded
    reason: str


def compare(
    processes: Processes,
    candidate: str,
    baseline: str,
    aa: tuple[str, str],
    *,
    default_clock_mhz: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two contenders of the same finals; ``aa`` names the two slots that ran the same config."""
    return _Finals(processes, aa, default_clock_mhz, seed).compare(candidate, baseline)


def decide(
    processes: Processes,
    *,
    incumbent: str,
    default: str | None,
    aa: tuple[str, str],
    resources: Mapping[str, Any],
    default_clock_mhz: int | None = None,
    seed: int = 0,
) -> Decision:
    """Pick the winner of one problem's finals.

    Args:
        processes: the cycles of each measuring process.
        incumbent: the contender that stays unless another is better. Where no config is in use, or the one in
            use fails, the kernel's default, or else the fastest of the screening.
        default: the kernel's own choice, where it works; may be the incumbent.
        aa: the two names under which the incumbent ran; the second is no contender.
        resources: per contender, what breaks a tie, smallest first: resources taken, then the config's values in
            field order, so that a second run picks the same config.
        default_clock_mhz: of the SMs; None where the device does not tell.
        seed: of the bootstrap.
    """
    finals = _Finals(processes, aa, default_clock_mhz, seed)
    versus, dropped = finals.compare, finals.dropped
    names = [name for name in finals.names if name != aa[1]]
    vs_incumbent = {name: versus(name, incumbent) for name in names}
    vs_default = {name: versus(name, default) for name in names} if default in names else {}
    unstable = dropped > MAX_DROPPED

    def decision(winner: str, reason: str, *, tie: bool = False) -> Decision:
        return Decision(winner, vs_incumbent, vs_default, tie=tie, unstable=unstable, reason=reason)

    if unstable:
        why = "thermal or power-brake throttling, or a low SM clock"
        return decision(incumbent, f"the machine is unstable: {dropped:.0%} of the cycles were dropped ({why})")
    if incumbent not in names:
        return decision(incumbent, f"{incumbent} failed in the finals: there is nothing to compare with")
    better = [name for name in names if vs_incumbent[name].verdict is Verdict.BETTER]
    if not better:
        return decision(*_kept(incumbent, vs_incumbent), tie=_is_tie(incumbent, vs_incumbent))
    best = min(better, key=lambda name: vs_incumbent[name].ratio)
    tied = [name for name in better if name == best or versus(name, best).verdict is Verdict.SAME]
    winner = min(tied, key=lambda name: (resources[name], name))
    return decision(winner, _won(winner, best, tied, vs_incumbent[winner]))


def judge(estimate: Estimate, log_floor: float, dropped: float, *, enough: bool = True) -> Comparison:
    """The verdict on an estimated log-ratio. Too few cycles (``enough``) say nothing: the interval is unbounded."""
    if not enough:
        estimate = replace(estimate, low=-math.inf, high=math.inf)
    floor = math.expm1(log_floor) if log_floor < math.inf else math.inf
    margin = max(MIN_MARGIN, FLOOR_FACTOR * floor)
    limit = math.log1p(margin)
    verdict = Verdict.INCONCLUSIVE
    if dropped <= MAX_DROPPED:
        if estimate.high < -limit and estimate.consistent:
            verdict = Verdict.BETTER
        elif estimate.low > limit and estimate.consistent:
            verdict = Verdict.WORSE
        elif -limit <= estimate.low and estimate.high <= limit and margin <= MAX_MARGIN:
            verdict = Verdict.SAME
    return Comparison(
        ratio=math.exp(estimate.value),
        low=math.exp(estimate.low),
        high=math.exp(estimate.high) if estimate.high < math.inf else math.inf,
        verdict=verdict,
        floor=floor,
        margin=margin,
        dropped=dropped,
    )


def good_cycles(processes: Processes, default_clock_mhz: int | None) -> list[list[Cycle]]:
    """The cycles of each process that ran on a healthy machine. A bad cycle is dropped whole, to keep the pairs."""
    lowest = MIN_CLOCK * (default_clock_mhz or 0)

    def good(cycle: Cycle) -> bool:
        return BAD_THROTTLE.isdisjoint(cycle.throttle) and (cycle.sm_clock_mhz is None or cycle.sm_clock_mhz >= lowest)

    return [[cycle for cycle in cycles if good(cycle)] for cycles in processes]


class _Finals:
    """Log times of one problem's finals, and what the A/A pair says about them."""

    def __init__(self, processes: Processes, aa: tuple[str, str], default_clock_mhz: int | None, seed: int) -> None:
        import numpy as np  # noqa: PLC0415

        total = sum(len(cycles) for cycles in processes)
        kept = [cycles for cycles in good_cycles(processes, default_clock_mhz) if cycles]
        count = sum(len(cycles) for cycles in kept)
        self.dropped = 1 - count / total if total else 1.0
        self.enough = count >= MIN_CYCLES
        everywhere = [name for cycles in kept for name in cycles[0].samples_us]
        present = {name for name in everywhere if all(name in each.samples_us for cycles in kept for each in cycles)}
        self.names = [name for name in dict.fromkeys(everywhere) if name in present]
        self._times = [
            {name: np.log([cycle.samples_us[name] for cycle in cycles]) for name in self.names} for cycles in kept
        ]
        self._resampler = Resampler([len(cycles) for cycles in kept], seed=seed) if kept else None
        self._floor = self._estimate(*aa).bound

    def _estimate(self, candidate: str, baseline: str) -> Estimate:
        if self._resampler is None or not {candidate, baseline} <= set(self.names):  # nothing measured: nothing known
            return Estimate(0.0, -math.inf, math.inf, ())
        return self._resampler.estimate([times[candidate] - times[baseline] for times in self._times])

    def compare(self, candidate: str, baseline: str) -> Comparison:
        return judge(self._estimate(candidate, baseline), self._floor, self.dropped, enough=self.enough)


def _is_tie(incumbent: str, comparisons: Mapping[str, Comparison]) -> bool:
    return any(each.verdict is Verdict.SAME for name, each in comparisons.items() if name != incumbent)


def _kept(incumbent: str, comparisons: Mapping[str, Comparison]) -> tuple[str, str]:
    """The incumbent and why it stays."""
    others = {name: each for name, each in comparisons.items() if name != incumbent}
    if not others:
        return incumbent, f"{incumbent} is the only contender"
    best = min(others, key=lambda name: others[name].ratio)
    facts = describe(others[best])
    if _is_tie(incumbent, comparisons):
        return incumbent, f"tie: nothing is better than {incumbent} by more than the margin; {best} is {facts}"
    if others[best].verdict is Verdict.WORSE:
        return incumbent, f"{incumbent} is the fastest; {best}, the next, is {facts}"
    return incumbent, f"{incumbent} stays, the measurement is inconclusive: {best} is {facts}"


def _won(winner: str, best: str, tied: Sequence[str], comparison: Comparison) -> str:
    reason = f"{winner} is {describe(comparison)}"
    if len(tied) == 1:
        return reason
    if winner == best:
        return f"{reason}; of {len(tied)} tied for best, it takes the fewest resources"
    return f"{reason}; tied with {best}, and takes fewer resources"


def describe(comparison: Comparison) -> str:
    """``0.893 times the baseline's time [0.889, 0.897], margin 1.0 %``."""
    interval = f"[{comparison.low:.3f}, {comparison.high:.3f}]"
    return f"{comparison.ratio:.3f} times the baseline's time {interval}, margin {comparison.margin:.1%}"
