"""Time that a sweep may take, shared between its tasks; a part of each share is kept for the finals."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from attnctl.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LARGEST_RESERVE = 0.5  # of a task's share


def parse_budget(text: str) -> float:
    """``90s``, ``10m`` or ``1h`` in seconds."""
    match = re.fullmatch(r"([1-9][0-9]*)(s|m|h)", text)
    if match is None:
        raise UsageError(f"budget {text!r}: not a duration", "write, for example, 90s, 10m or 1h")
    return int(match[1]) * _UNITS[match[2]]


@dataclass
class Budget:
    """``seconds`` from now on; None: as long as it takes."""

    seconds: float | None
    _begun: float = field(default_factory=time.monotonic)

    def share(self, tasks_left: int) -> Share:
        """An equal part of what is left for each of ``tasks_left`` tasks."""
        now = time.monotonic()
        if self.seconds is None:
            return Share(now, None)
        return Share(now, now + max(0.0, self._begun + self.seconds - now) / tasks_left)


@dataclass(frozen=True, slots=True)
class Share:
    """One task's part of a budget."""

    begun: float
    end: float | None

    def left(self) -> float | None:
        return None if self.end is None else self.end - time.monotonic()

    def screening_is_over(self, reserve_s: Callable[[], float]) -> bool:
        """Must the finals begin, given what they will take?"""
        if self.end is None:
            return False
        return time.monotonic() >= self.end - min(reserve_s(), _LARGEST_RESERVE * (self.end - self.begun))
