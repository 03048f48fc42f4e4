"""Ctrl-C, SIGTERM and the end of the terminal end a sweep between two steps that must not be torn apart."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user or the system wants the sweep to end. Not an ``Exception``: nothing that handles faults may eat it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number  # as shells report it


class Interrupts:
    """While entered, a first signal raises :class:`Interrupted` in the main thread; a second has its old effect."""

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}
        self._shields = 0
        self._pending: int | None = None

    def __enter__(self) -> Self:
        heeded = (number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN)  # nohup ignores one
        self._old = {number: signal.signal(number, self._handle) for number in heeded}
        return self

    def __exit__(self, *unused: object) -> None:
        self._restore()

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Put a signal off until the block is done: writing a record, for example."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending is not None and not self._shields:
            self._raise(self._pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._shields:
            self._pending = number
        else:
            self._raise(number)

    def _raise(self, number: int) -> None:
        self._pending = None
        self._restore()
        raise Interrupted(number)

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}
