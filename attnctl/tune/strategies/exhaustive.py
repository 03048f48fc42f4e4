"""Measure everything, cheapest predicted first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnctl.gpu.protocol import Result
from attnctl_kernels.contract import Candidate


@dataclass(frozen=True, slots=True)
class Exhaustive:
    lookahead: ClassVar[int | None] = None

    def propose(self, candidates: Sequence[Candidate], observed: Mapping[str, Result]) -> Iterator[Candidate]:
        yield from candidates


STRATEGY = Exhaustive
