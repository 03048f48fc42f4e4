"""A sweep's progress on stderr: one line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from attnctl.gpu.protocol import Prepared, Result
from attnctl.report._terminal import one_line
from attnctl.tune.progress import Progress
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate, Outcome

if TYPE_CHECKING:
    from rich.status import Status

_EVERY_S = 5.0  # a plain line at most this often


def live(*, terminal: bool, verbosity: int = 0) -> Progress:
    """The progress display for stderr; ``verbosity`` below 0: none, above: a line per outcome."""
    if verbosity < 0:
        return Progress()
    if verbosity > 0:
        return _Every()
    return _Moving() if terminal else _Plain()


@dataclass
class _Tally:
    """What both displays count, for one task."""

    total: int = 0
    done: int = 0
    failed: Counter[Outcome] = field(default_factory=Counter)
    best: tuple[float, Candidate] | None = None
    begun: float = field(default_factory=time.monotonic)

    def add(self, candidate: Candidate, result: Result) -> None:
        self.done += 1
        if result.outcome is not Outcome.OK:
            self.failed[result.outcome] += 1
        elif result.timing and (self.best is None or result.timing.median_us < self.best[0]):
            self.best = (result.timing.median_us, candidate)

    def __str__(self) -> str:
        """``17/110 done, 3 failed (2 timeout, 1 wrong_result), best 467.3 us tile_m=128 ..., 40 s left``."""
        parts = [f"{self.done}/{self.total} done"]
        if self.failed:
            kinds = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.failed.items()))
            parts.append(f"{self.failed.total()} failed ({kinds})")
        if self.best:
            parts.append(f"best {self.best[0]:,.1f} us {one_line(str(self.best[1]))}")
        if 0 < self.done < self.total:
            left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
            parts.append(f"{left:.0f} s left")
        return ", ".join(parts)


class _Display(Progress):
    def __init__(self) -> None:
        self._tally = _Tally()

    def say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a sweep outlives who was watching it
            typer.echo(message, err=True)

    def start(self, space: Space, prepared: Prepared, known: int, most: int) -> None:
        self._tally = _Tally(total=max(0, min(most, len(space.candidates)) - known))
        case = space.case
        self.say(
            f"{case.problem.slug} {case.pass_name}: {self._tally.total} to measure, density {prepared.density:.3f}, "
            f"{len(space.drops)} dropped by rules"
        )

    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        self._tally.add(candidate, result)


class _Plain(_Display):
    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        super().outcome(candidate, result, note)
        if result.outcome is not Outcome.OK:
            self.say(f"{result.outcome}: {candidate}: {one_line(result.reason)}")
        if self._tally.done >= self._tally.total or time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            self.say(str(self._tally))

    def finals(self, process: int, processes: int, contenders: int) -> None:
        self.say(f"finals: process {process} of {processes}, {contenders} contenders")


class _Every(_Plain):
    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        if result.outcome is Outcome.OK:
            median = f" {result.timing.median_us:,.1f} us" if result.timing else ""
            self.say(f"{result.outcome}: {candidate}:{median}{f' ({one_line(note)})' if note else ''}")
        super().outcome(candidate, result, note)


class _Moving(_Display):
    """Rich redraws the line; what is said goes above it."""

    _status: Status | None = None

    def say(self, message: str) -> None:
        console = self._shown().console
        console.print(message, highlight=False, markup=False)

    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        super().outcome(candidate, result, note)
        self._show(str(self._tally))

    def finals(self, process: int, processes: int, contenders: int) -> None:
        self._show(f"finals: process {process} of {processes}, {contenders} contenders")

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, text: str) -> None:
        from rich.text import Text  # noqa: PLC0415 - only for a terminal

        self._shown().update(Text(text))

    def _shown(self) -> Status:
        if self._status is None:
            from rich.console import Console  # noqa: PLC0415 - only for a terminal

            self._status = Console(stderr=True).status("")
            self._status.start()
        return self._status
