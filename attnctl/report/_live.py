"""A sweep's progress on stderr: a table that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import typer

from attnctl.gpu.protocol import Prepared, Result
from attnctl.report._tally import Tally
from attnctl.report._terminal import one_line
from attnctl.tune.progress import Progress
from attnctl.tune.space import Space
from attnctl.words import counted
from attnctl_kernels.contract import Candidate, Outcome

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

_EVERY_S = 5.0  # a plain line at most this often


def live(*, terminal: bool, verbosity: int = 0) -> Progress:
    """The progress display for stderr; ``verbosity`` below 0: none, above: a line per outcome."""
    if verbosity < 0:
        return Progress()
    if verbosity > 0:
        return _Every()
    return _Moving() if terminal else _Plain()


class _Display(Progress):
    def __init__(self) -> None:
        self._tally = Tally()

    def say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a sweep outlives who was watching it
            typer.echo(message, err=True)

    def start(self, space: Space, prepared: Prepared, known: int, most: int) -> None:
        self._tally = Tally(space, total=max(0, min(most, len(space.candidates)) - known))
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
        self.say(f"finals: process {process} of {processes}, {counted(contenders, 'contender')}")


class _Every(_Plain):
    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        if result.outcome is Outcome.OK:
            median = f" {result.timing.median_us:,.1f} us" if result.timing else ""
            self.say(f"{result.outcome}: {candidate}:{median}{f' ({one_line(note)})' if note else ''}")
        super().outcome(candidate, result, note)


class _Moving(_Display):
    """Rich draws the table; what is said goes above it."""

    _live: Live | None = None
    _spinner: Spinner | None = None

    def say(self, message: str) -> None:
        self._shown().console.print(message, highlight=False, markup=False)

    def start(self, space: Space, prepared: Prepared, known: int, most: int) -> None:
        super().start(space, prepared, known, most)
        self._draw()

    def outcome(self, candidate: Candidate, result: Result, note: str = "") -> None:
        super().outcome(candidate, result, note)
        self._draw()

    def finals(self, process: int, processes: int, contenders: int) -> None:
        self._tally.enter_finals(process, processes, contenders)
        self._draw()

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        """One line per row, however narrow: a table that wraps would jump."""
        from rich.spinner import Spinner  # noqa: PLC0415 - only for a terminal
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._spinner = self._spinner or Spinner("dots")  # the same in every table, so that it goes on turning
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for number, (word, text) in enumerate(self._tally.rows()):
            table.add_row("" if number else self._spinner, word, Text(text))
        self._shown().update(table)

    def _shown(self) -> Live:
        if self._live is None:
            from rich.console import Console  # noqa: PLC0415 - only for a terminal
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=8)
            self._live.start()
        return self._live
