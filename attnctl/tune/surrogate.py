"""What the times so far say about candidates that nobody has measured: a Gaussian process over a task's space.

The logarithm of a time is modelled as the family's own prediction plus a correction that is learned: a part that
each parameter adds by itself and a part that depends on all of them together, over the parameters' values and the
shares of the device's resources that they take. Where a family predicts nothing the correction is all there is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnctl.profile.candidate import case_of
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate
from attnctl_kernels.families import get_family

if TYPE_CHECKING:
    import numpy as np

# Weak beliefs, in logarithms of time, not fitted to recorded sweeps: benchmarks/strategies.py shows that spaces whose
# prediction is shuffled or taken away, or whose values are in another order, do about as well.
_LENGTHS = (0.15, 0.5, 1.0)  # how far one value speaks for others, where the largest and the smallest are 1 apart
_TRUST = 0.5  # standard deviation of the prediction's exponent, around 1
_LEVEL = 2.0  # of the common factor between prediction and time
_NOISE = 0.005  # of a median
_AMPLITUDES = (0.1, 0.2, 0.4, 0.8)  # of the correction
_SHARES = (0.1, 0.5, 0.9)  # of the additive part in its variance
_USUAL = (0.25, 0.5, 0.5)  # amplitude, share and length until there are times to fit them to
_ENOUGH_TO_FIT = 4
_SELDOM = 16


_Hyper = tuple[float, float, float]  # amplitude, share, length


class Surrogate:
    """Predictions for one space. Candidates are numbers: places in ``space.candidates``."""

    def __init__(self, space: Space) -> None:
        import numpy as np  # noqa: PLC0415

        self._features = _features(space)
        self._fits: dict[int, _Hyper] = {}  # by the number of times
        costs = np.array([space.predicted[each.key] for each in space.candidates])
        known = costs > 0  # a family may predict nothing, or not for every config: that is average then
        logs = np.log(costs, where=known, out=np.zeros(len(costs)))
        self._predicted = np.where(known, logs - logs[known].mean() if known.any() else 0.0, 0.0)

    def posterior(self, times: Mapping[int, float], assumed: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every candidate's log time.

        Args:
            times: logarithms of what was measured.
            assumed: candidates that take what is expected of them, so that only the deviation shrinks around them.
        """
        hyper = self._fitted(times)
        mean, deviation = self._conditioned(times, hyper)
        if assumed:
            believed = {**times, **{each: float(mean[each]) for each in assumed}}
            _, deviation = self._conditioned(believed, hyper)
        return mean, deviation

    def _fitted(self, times: Mapping[int, float]) -> _Hyper:
        """What makes ``times`` most likely, with a preference for the usual amplitude."""
        import numpy as np  # noqa: PLC0415

        if len(times) < _ENOUGH_TO_FIT:
            return _USUAL
        if len(times) > _SELDOM:  # more times change little, and each fit costs more
            times = dict(itertools.islice(times.items(), len(times) - len(times) % _SELDOM))
        if len(times) in self._fits:
            return self._fits[len(times)]

        def likelihood(hyper: _Hyper) -> float:
            factor, residual = self._solved(times, hyper)
            surprise = math.log2(hyper[0] / _USUAL[0])
            return float(-0.5 * residual @ residual - np.log(np.diag(factor)).sum()) - 0.5 * surprise**2

        best = max(itertools.product(_AMPLITUDES, _SHARES, _LENGTHS), key=likelihood)
        self._fits[len(times)] = best
        return best

    def _conditioned(self, times: Mapping[int, float], hyper: _Hyper) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np  # noqa: PLC0415

        prior = hyper[0] ** 2 + (_TRUST * self._predicted) ** 2
        if not times:
            return self._predicted, np.sqrt(prior)
        places, values = np.fromiter(times, int), np.fromiter(times.values(), float)
        factor, residual = self._solved(times, hyper)
        across = np.linalg.solve(factor, self._kernel(places, np.arange(len(self._predicted)), hyper))
        level = (values - self._predicted[places]).mean()
        mean = self._predicted + level + across.T @ residual
        variance = prior + _LEVEL**2 - (across**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, _NOISE**2 / 4))

    def _solved(self, times: Mapping[int, float], hyper: _Hyper) -> tuple[np.ndarray, np.ndarray]:
        """The Cholesky factor of the covariance of ``times``, and their deviations from the prediction in its terms."""
        import numpy as np  # noqa: PLC0415

        places, values = np.fromiter(times, int), np.fromiter(times.values(), float)
        factor = np.linalg.cholesky(self._kernel(places, places, hyper) + _NOISE**2 * np.eye(len(places)))
        off = values - self._predicted[places]
        return factor, np.linalg.solve(factor, off - off.mean())

    def _kernel(self, rows: np.ndarray, columns: np.ndarray, hyper: _Hyper) -> np.ndarray:
        import numpy as np  # noqa: PLC0415

        amplitude, share, length = hyper
        apart = (self._features[rows][:, None, :] - self._features[columns][None, :, :]) ** 2 / (2 * length**2)
        additive, joint = np.exp(-apart).mean(axis=2), np.exp(-apart.sum(axis=2))
        correction: np.ndarray = amplitude**2 * (share * additive + (1 - share) * joint)
        trusted = _TRUST**2 * np.outer(self._predicted[rows], self._predicted[columns])
        return correction + trusted + _LEVEL**2


def _features(space: Space) -> np.ndarray:
    """One row per candidate, one column per parameter that varies and resource that differs, each from 0 to 1."""
    import numpy as np  # noqa: PLC0415

    parameters = [_parameters(each) for each in space.candidates]
    columns = [_placed([each.get(name) for each in parameters]) for name in parameters[0]]
    columns += _resources(space)
    spread = [(column - column.min()) / np.ptp(column) for column in columns if np.ptp(column) > 0]
    # Candidates that look alike are one to the surrogate; a space that does not vary at all has a column of zeros.
    return np.stack(spread, axis=1) if spread else np.zeros((len(parameters), 1))


def _parameters(candidate: Candidate) -> dict[str, Any]:
    block = candidate.sparse_block or (None, None)
    return {**candidate.config, "sparse_block.q": block[0], "sparse_block.kv": block[1]}


def _placed(values: Sequence[Any]) -> np.ndarray:
    """Values by their place among those that occur: tiles come in steps, whose sizes say little."""
    import numpy as np  # noqa: PLC0415

    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value is not None, value or 0))
    places = {value: place for place, value in enumerate(distinct)}
    return np.array([float(places[value]) for value in values])


def _resources(space: Space) -> list[np.ndarray]:
    import numpy as np  # noqa: PLC0415

    family = get_family(space.case.family)
    taken = [
        {each.name: each.used / each.limit for each in family.resources(case_of(space.case, candidate)) if each.limit}
        for candidate in space.candidates
    ]
    names = dict.fromkeys(name for each in taken for name in each)
    return [np.array([each.get(name, 0.0) for each in taken]) for name in names]
