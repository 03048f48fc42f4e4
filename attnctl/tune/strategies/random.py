"""Measure a seeded random sample: the baseline of every other strategy."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from attnctl.gpu.protocol import Result
from attnctl.tune.space import Space
from attnctl.tune.strategies import Choose, Stop
from attnctl_kernels.contract import Candidate


@dataclass(frozen=True, slots=True)
class Random:
    lookahead: ClassVar[int | None] = None
    samples: int = 32  # beside default and incumbent
    seed: int = 0

    def start(self, space: Space) -> Choose:
        # Drawn from the sorted keys: the sample does not change when the predicted order does.
        by_key = sorted((each for each in space.candidates if each not in space.required), key=lambda each: each.key)
        sample = random.Random(self.seed).sample(by_key, min(self.samples, len(by_key)))  # noqa: S311

        def choose(tried: Mapping[str, Result], pending: Collection[str]) -> Candidate | Stop:
            free = (each for each in sample if each.key not in tried and each.key not in pending)
            return next(free, Stop(f"the sample of {len(sample)} was tried"))

        return choose

    def most(self, count: int) -> int:
        return min(count, self.samples + 2)


STRATEGY = Random
