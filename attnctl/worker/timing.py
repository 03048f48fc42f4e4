"""Screening: the latency of one candidate, alone. Finals decide; this only says who gets there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from attnctl.gpu.protocol import CachePolicy, Timing
from attnctl.worker.devices import Device, Run

_ESTIMATE_CALLS = 5
_ESTIMATE_BUDGET_S = 0.25
_GIVE_UP_RATIO = 2.0
_SAMPLES_AT_LEAST = 30
_SAMPLES_IN_ANY_CASE = 3
_KERNEL_TIME_S = 0.1
_WALL_TIME_S = 1.0
_BATCH_TIME_S = 0.02
_BATCH_CALLS = 32
_HOST_RUNS = 5
_HOST_BUDGET_S = 0.05


def screen(
    device: Device,
    run: Run,
    cache: CachePolicy,
    *,
    calls: int = 0,
    best_us: float | None = None,
    max_samples: int = 2000,
    between: Run | None = None,
) -> Timing:
    """At least 30 samples and about 100 ms of kernel time, but no more than a second.

    All launches are bounded by measured time, the first ones too: a kernel of 50 ms is not launched a thousand times to
    warm it up. ``calls`` is how many a run makes, where it is a graph of them: times are of one.
    """
    divisor = max(1, calls)

    def sample(count: int) -> list[float]:
        return [us / divisor for us in device.sample_us([run] * count, cache, between)]

    estimates: list[float] = []
    end = time.monotonic() + _ESTIMATE_BUDGET_S
    while len(estimates) < _ESTIMATE_CALLS and (not estimates or time.monotonic() < end):
        estimates += sample(1)
    if best_us is not None and min(estimates) > _GIVE_UP_RATIO * best_us:
        return _timing(estimates, cache, calls, gave_up=True)

    estimate_s = statistics.median(estimates) * divisor / 1e6
    batch = max(1, min(_BATCH_CALLS, int(_BATCH_TIME_S / estimate_s) if estimate_s else _BATCH_CALLS))
    samples: list[float] = []
    end = time.monotonic() + _WALL_TIME_S
    while not _enough(samples, max_samples, divisor, late=time.monotonic() >= end):
        samples += sample(min(batch, max_samples - len(samples)))
    return _timing(samples, cache, calls)


def host_us(device: Device, work: Run) -> float:
    """Wall time of work that the host begins, until the device has done its part: median of a few runs."""
    samples: list[float] = []
    end = time.monotonic() + _HOST_BUDGET_S
    while len(samples) < _HOST_RUNS and (not samples or time.monotonic() < end):
        device.synchronize()
        begun = time.perf_counter()
        work()
        device.synchronize()
        samples.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(samples)


def _enough(samples: Sequence[float], max_samples: int, calls: int, *, late: bool) -> bool:
    count = len(samples)
    if count >= max_samples:
        return True
    if late:
        return count >= _SAMPLES_IN_ANY_CASE
    return count >= _SAMPLES_AT_LEAST and sum(samples) * calls >= _KERNEL_TIME_S * 1e6


def _timing(samples: Sequence[float], cache: CachePolicy, graph_calls: int, *, gave_up: bool = False) -> Timing:
    ordered = sorted(samples)
    return Timing(
        median_us=statistics.median(ordered),
        p20_us=_percentile(ordered, 0.2),
        p80_us=_percentile(ordered, 0.8),
        min_us=ordered[0],
        count=len(ordered),
        samples_us=tuple(samples),
        cache=cache,
        graph_calls=graph_calls,
        gave_up=gave_up,
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between neighbours."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
