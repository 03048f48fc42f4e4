"""Measure everything, cheapest predicted first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from attnctl.gpu.protocol import Result
from attnctl.tune.space import Space
from attnctl.tune.strategies import Choose, Stop
from attnctl_kernels.contract import Candidate


@dataclass(frozen=True, slots=True)
class Exhaustive:
    lookahead: ClassVar[int | None] = None

    def start(self, space: Space) -> Choose:
        def choose(tried: Mapping[str, Result], pending: Collection[str]) -> Candidate | Stop:
            free = (each for each in space.candidates if each.key not in tried and each.key not in pending)
            return next(free, Stop("everything was tried"))

        return choose

    def most(self, count: int) -> int:
        return count


STRATEGY = Exhaustive
