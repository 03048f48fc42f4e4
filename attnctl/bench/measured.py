"""What the processes of one benchmark recorded, before anything is concluded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnctl.bench.medians import process_medians
from attnctl.bench.plan import Plan
from attnctl.gpu.protocol import Cycle, Environment, Prepared
from attnctl.tune.decide import Comparison, compare, good_cycles

Processes = tuple[tuple[Cycle, ...], ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """A guest's processes, one between each two of the host's; or why it failed."""

    name: str
    aa: tuple[str, str]
    processes: Processes
    failure: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    plan: Plan
    environment: Environment
    prepared: Prepared
    processes: Processes
    failed: Mapping[str, str]  # by slot
    guests: tuple[Visit, ...]

    @property
    def head_failure(self) -> str:
        """Why the config on disk has no time; it runs in two slots."""
        return next((self.failed[name] for name in self.plan.aa if name in self.failed), "")

    @property
    def dropped(self) -> float:
        """Share of the cycles that were dropped for the machine's state."""
        return 1 - len(self.good) / self.cycles if self.cycles else 0.0

    @property
    def cycles(self) -> int:
        return sum(len(each) for each in self.processes)

    @property
    def good(self) -> list[Cycle]:
        return [each for cycles in good_cycles(self.processes, self.clock) for each in cycles]

    @property
    def clock(self) -> int | None:
        return self.environment.clock_default_mhz

    @property
    def floor(self) -> float:
        return self.compare(self.plan.aa[1]).floor

    @property
    def medians(self) -> list[float]:
        """Of the config on disk, one per process."""
        return process_medians(self.processes, self.plan.head, self.clock)

    def compare(self, name: str) -> Comparison:
        """The time of the config on disk over the time of ``name``."""
        return compare(self.processes, self.plan.head, name, self.plan.aa, default_clock_mhz=self.clock)
