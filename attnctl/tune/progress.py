"""What a sweep tells about itself while it runs. The base says nothing; ``report/sweep.py`` shows it to people."""

from __future__ import annotations

from attnctl.gpu.protocol import Prepared, Result
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate


class Progress:
    def say(self, message: str) -> None:
        """One line that a user should read."""

    def start(self, space: Space, prepared: Prepared, known: int, most: int) -> None:
        """A task's screening begins, of ``most`` candidates at most; ``known`` outcomes come from the journal."""

    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        """A candidate is done."""

    def finals(self, process: int, processes: int, contenders: int) -> None:
        """A process of the finals begins."""

    def end(self) -> None:
        """The task is over, one way or another."""
