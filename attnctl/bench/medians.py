"""Ratios between measurements that could not be interleaved, from one median per process.

Two families live in workers of their own, and a stored number comes from another day. Cycles of different processes
make no pairs, so that only the processes count as evidence, and the interval is Student's: three processes give a
wide one, and that is the truth about three processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from attnctl.tune.decide import MIN_CYCLES, Comparison, Processes, good_cycles, judge
from attnctl.tune.resample import Estimate

# Student's 97.5 % points by degrees of freedom; the last serves all larger ones, on the safe side.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def process_medians(processes: Processes, name: str, default_clock_mhz: int | None) -> list[float]:
    """The median time of ``name`` in each process that has enough good cycles of it."""
    samples = (
        [cycle.samples_us[name] for cycle in cycles if name in cycle.samples_us]
        for cycles in good_cycles(processes, default_clock_mhz)
    )
    return [statistics.median(each) for each in samples if len(each) >= MIN_CYCLES / 3]


def compare_alternating(candidate: Sequence[float], baseline: Sequence[float], floor: float) -> Comparison:
    """Medians of processes that ran in turn: neighbours in time are paired."""
    return _judge([math.log(c / b) for c, b in zip(candidate, baseline, strict=False)], floor, spread=1.0)


def compare_stored(now: Sequence[float], stored: float, floor: float) -> Comparison:
    """Medians of today against a stored one, which came from one process and strayed as much as each of today's."""
    return _judge([math.log(each / stored) for each in now], floor, spread=math.sqrt(1 + len(now)))


def _judge(log_ratios: Sequence[float], floor: float, spread: float) -> Comparison:
    """``spread`` times the standard error is the uncertainty of the mean."""
    count = len(log_ratios)
    if count < 2:
        return judge(Estimate(sum(log_ratios), -math.inf, math.inf, ()), math.log1p(floor), dropped=0.0)
    mean = statistics.fmean(log_ratios)
    error = spread * statistics.stdev(log_ratios) / math.sqrt(count)
    half = _STUDENT[min(count - 1, len(_STUDENT)) - 1] * error
    return judge(Estimate(mean, mean - half, mean + half, tuple(log_ratios)), math.log1p(floor), dropped=0.0)
