"""How a benchmark measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import CachePolicy


@dataclass(frozen=True, slots=True)
class Settings:
    cycles: int  # per process
    cache: CachePolicy
    state_dir: Path
    band: float | None = None  # what the gate allows; None: no gate
    judge_stored: bool = False  # also where something better ran beside it
    deadlines: Deadlines = field(default_factory=Deadlines)
