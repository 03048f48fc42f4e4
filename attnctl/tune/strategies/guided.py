"""Measure what is likely to be the fastest, learn from each time, and stop when little can be gained.

A Gaussian process (:mod:`attnctl.tune.surrogate`) starts from the family's own prediction. Each candidate is the one
with the largest expected improvement over the best so far, where those that are still being compiled are assumed to
take what is expected of them: that keeps a wave of compilers busy with candidates that differ.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from attnctl.gpu.protocol import Result
from attnctl.tune.space import Space
from attnctl.tune.strategies import Choose, Stop
from attnctl.tune.surrogate import Surrogate
from attnctl_kernels.contract import Candidate, Outcome

if TYPE_CHECKING:
    import numpy as np

_FAILED = 1.0  # log time over the slowest: what a failure counts as, so that its neighbourhood is left


@dataclass(frozen=True, slots=True)
class Guided:
    lookahead: ClassVar[int | None] = 2
    small: int = 40  # spaces up to here are measured whole: a third of dense-4k-d128, 34, missed the best by 2.5 %
    least: int = 16  # of a larger one, before it may stop
    share: int = 4  # at most a quarter,
    limit: int = 256  # and no more than this
    permille: int = 5  # a gain below it is none
    chance: int = 5  # percent: stop when something better is less likely than that

    def start(self, space: Space) -> Choose:
        return partial(self._choose, space, Surrogate(space))

    def _choose(
        self, space: Space, surrogate: Surrogate, tried: Mapping[str, Result], pending: Collection[str]
    ) -> Candidate | Stop:
        free = [
            place for place, each in enumerate(space.candidates) if each.key not in tried and each.key not in pending
        ]
        count, most = len(space.candidates), self.most(len(space.candidates))
        if not free or len(tried) + len(pending) >= most:
            return Stop(f"{most} of {count} is what guided tries at most" if free else "everything was tried")
        if count <= self.small:
            return space.candidates[free[0]]
        places = {each.key: place for place, each in enumerate(space.candidates)}
        waiting = [places[key] for key in pending if key in places]
        times, best = _times(tried, places)
        mean, deviation = surrogate.posterior(times)
        if best is not None and len(tried) >= self.least:
            chance = self._chance_of_better(best, [*free, *waiting], mean, deviation)
            if chance < self.chance / 100:
                gain = f"{self.permille / 10:g} %"
                return Stop(f"the chance of one more that is {gain} faster is {chance:.1%}", wait=False)
        if waiting:
            mean, deviation = surrogate.posterior(times, assumed=waiting)
        target = min(
            [float(mean[each]) for each in waiting] + ([] if best is None else [best]), default=float(mean.min())
        )
        gains = _expected_improvement(target, mean[free], deviation[free])
        return space.candidates[free[int(gains.argmax())]]

    def most(self, count: int) -> int:
        """How many candidates of a space are tried at most."""
        return count if count <= self.small else max(1, min(self.limit, count // max(1, self.share)))

    def _chance_of_better(self, best: float, rest: list[int], mean: np.ndarray, deviation: np.ndarray) -> float:
        """That any of ``rest`` beats ``best`` by what counts; as if they were independent, so rather too high."""
        import numpy as np  # noqa: PLC0415

        goal = best + math.log1p(-self.permille / 1000)
        return 1.0 - float(np.prod(1.0 - _normal((goal - mean[rest]) / deviation[rest])))


def _times(tried: Mapping[str, Result], places: Mapping[str, int]) -> tuple[dict[int, float], float | None]:
    """Log times by place, with one that repels for what failed; and the best."""
    right = {
        places[key]: math.log(each.timing.median_us)
        for key, each in tried.items()
        if key in places and each.outcome is Outcome.OK and each.timing
    }
    worst = max(right.values(), default=0.0)
    failed = {places[key]: worst + _FAILED for key in tried if key in places and places[key] not in right}
    return {**right, **failed}, min(right.values(), default=None)


def _expected_improvement(best: float, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    import numpy as np  # noqa: PLC0415

    distance = (best - mean) / deviation
    density = np.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi)
    gains: np.ndarray = deviation * (distance * _normal(distance) + density)
    return gains


def _normal(distance: np.ndarray) -> np.ndarray:
    """The standard normal distribution. numpy has no error function."""
    import numpy as np  # noqa: PLC0415

    return np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in distance])


STRATEGY = Guided
