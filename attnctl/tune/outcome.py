"""What tuning one task came to: everything that the report shows, in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from attnctl.gpu.protocol import Environment, Prepared
from attnctl.tune.decide import Comparison, Decision
from attnctl.tune.finals import FinalsCosts
from attnctl.tune.journal import OutcomeRecord
from attnctl.tune.screening import Costs
from attnctl.tune.space import Space
from attnctl.tune.strategies import Stop
from attnctl_kernels.contract import Candidate, Outcome, Task


class Status(StrEnum):
    WON = "won"  # something is better than what was in use
    TIE = "tie"  # nothing is, and something is as good
    KEPT = "kept"  # the config in use is the fastest, or the measurement cannot tell
    NO_CONFIG = "no config works"
    UNSTABLE = "unstable"  # the machine was: nothing may be concluded
    INTERRUPTED = "interrupted"


@dataclass
class TaskResult:
    """Filled in step by step, so that an interrupted sweep can be reported too."""

    task: Task
    space: Space
    environment: Environment
    journal: Path | None = None
    prepared: Prepared | None = None
    outcomes: Sequence[OutcomeRecord] = ()
    costs: Costs = field(default_factory=Costs)
    finals_costs: FinalsCosts = field(default_factory=FinalsCosts)
    startup_s: float = 0.0  # until the device was open and the inputs were ready
    measured_all: bool = True  # False: the budget ended before the space did
    stopped: Stop | None = None  # why the strategy wanted no more
    status: Status = Status.INTERRUPTED
    decision: Decision | None = None
    names: dict[str, Candidate] = field(default_factory=dict)  # the finals' contenders
    baseline: str = ""  # which of them the others were compared with
    processes: int = 0
    winner: Candidate | None = None
    warnings: tuple[str, ...] = ()  # about the winner
    written: Path | None = None
    unchanged: bool = False  # what is on disk says the same

    @property
    def failures(self) -> Counter[Outcome]:
        """Candidates by kind of failure."""
        return Counter(each.result.outcome for each in self.outcomes if each.result.outcome is not Outcome.OK)

    @property
    def against_default(self) -> Comparison | None:
        """The winner against the kernel's own choice; None where they are one, or the default does not run."""
        if self.decision is None or self.winner is None or self.winner == self.space.default:
            return None
        return self.decision.vs_default.get(self.decision.winner)

    @property
    def against_baseline(self) -> Comparison | None:
        """The winner against what was in use; None where that has won."""
        if self.decision is None or self.decision.winner == self.baseline:
            return None
        return self.decision.vs_incumbent[self.decision.winner]
