"""How long each phase of a worker may take, and how much memory."""

from __future__ import annotations

from dataclasses import dataclass

from attnctl.gpu.protocol import PhaseName


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds per phase, counted from the worker's latest :class:`~attnctl.gpu.protocol.Phase` line.

    ``finals`` covers one contender's preparation or one cycle, not the whole run. ``memory_bytes`` bounds the
    resident memory of one worker; None: most of the machine.
    """

    start: float = 180.0  # importing a framework from a cold disk
    prepare: float = 300.0
    compile: float = 120.0
    first_call: float = 30.0
    check: float = 120.0
    timing: float = 60.0
    finals: float = 60.0
    memory_bytes: int | None = None

    def of(self, phase: PhaseName) -> float:
        seconds: float = getattr(self, phase)
        return seconds
