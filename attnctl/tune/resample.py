"""Intervals for paired log-ratios: a hierarchical bootstrap over processes, then blocks of cycles.

Medians of the same kernel drift by a few percent between processes, and neighbouring cycles resemble each other.
Resampling single cycles would take both for independent evidence and give intervals that are far too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 2000
COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median log-ratio, its interval, and the median in each process."""

    value: float
    low: float
    high: float
    per_process: tuple[float, ...]

    @property
    def bound(self) -> float:
        """The largest distance from no difference that the interval allows."""
        return max(abs(self.low), abs(self.high))

    @property
    def consistent(self) -> bool:
        """Every process saw the same direction."""
        return all(each > 0 for each in self.per_process) or all(each < 0 for each in self.per_process)


class Resampler:
    """Draws once for one set of processes, so that all comparisons of it see the same resamples."""

    def __init__(self, lengths: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        """Take the number of cycles of each process, all positive."""
        import numpy as np  # noqa: PLC0415

        self._lengths = tuple(lengths)
        rng = np.random.default_rng(seed)
        sizes = np.asarray(lengths)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        block = max(1, round(math.sqrt(max(lengths))))
        blocks = math.ceil(max(lengths) / block)
        chosen = rng.integers(len(lengths), size=(resamples, len(lengths), 1, 1))
        first = rng.random((resamples, len(lengths), blocks, 1)) * sizes[chosen]
        # Blocks wrap around the end of their process, so that every cycle is as likely as any other.
        cycle = (first.astype(np.int64) + np.arange(block)) % sizes[chosen]
        self._indices: np.ndarray = (starts[chosen] + cycle).reshape(resamples, -1)

    def estimate(self, log_ratios: Sequence[np.ndarray]) -> Estimate:
        """Median and interval of ``log_ratios``, one array per process."""
        import numpy as np  # noqa: PLC0415

        pooled = np.concatenate(log_ratios)
        medians = np.sort(np.median(pooled[self._indices], axis=1, overwrite_input=True))
        # Order statistics from both ends, so that swapping the two sides mirrors the interval exactly.
        tail = int((1 - COVERAGE) / 2 * len(medians))
        return Estimate(
            value=float(np.median(pooled)),
            low=float(medians[tail]),
            high=float(medians[len(medians) - 1 - tail]),
            per_process=tuple(float(np.median(each)) for each in log_ratios),
        )
