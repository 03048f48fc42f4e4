"""Measure a seeded random sample: a first look at a large space."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnctl.gpu.protocol import Result
from attnctl_kernels.contract import Candidate


@dataclass(frozen=True, slots=True)
class Random:
    lookahead: ClassVar[int | None] = None
    samples: int = 32
    seed: int = 0

    def propose(self, candidates: Sequence[Candidate], observed: Mapping[str, Result]) -> Iterator[Candidate]:
        # Drawn from the sorted keys: the sample does not change when the predicted order does.
        by_key = sorted(candidates, key=lambda candidate: candidate.key)
        yield from random.Random(self.seed).sample(by_key, min(self.samples, len(by_key)))  # noqa: S311


STRATEGY = Random
