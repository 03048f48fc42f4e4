"""Where the workers of one command leave their logs, find their caches, and are forked from."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from pathlib import Path

from attnctl.gpu.client import Worker, command_of
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello
from attnctl.gpu.template import Template, can_fork
from attnctl.state import CACHE_FOLDER_VARIABLE

_MOST_LOGS = 50


class WorkerPlace(Closing):
    """Where the workers of one command leave their logs and find their caches: below the state folder.

    ``python`` is an interpreter with packages of its own, and sees none of this one's.
    """

    def __init__(self, state_dir: Path, stem: str, python: str | None = None) -> None:
        self._logs = state_dir.absolute() / "logs"
        _prune(self._logs)
        self._stem = f"{stem}-{os.getpid()}"
        self._count = itertools.count(1)  # safe among threads
        cache = os.environ.get(CACHE_FOLDER_VARIABLE) or str(state_dir.absolute() / "cache")
        self._environ = {CACHE_FOLDER_VARIABLE: cache} | ({"PYTHONPATH": ""} if python else {})
        self._interpreter = (python, "-P") if python else (sys.executable,)
        self._template: Template | None = None

    def prefer_forks(self, hello: Hello, deadlines: Deadlines) -> None:
        """From here on all workers are for ``hello``, and forks of one process where that is possible.

        That process belongs to the calling thread (see :mod:`attnctl.gpu.process`).
        """
        if can_fork():
            arguments, environ = command_of(hello)
            environ = {**self._environ, **environ}
            with contextlib.suppress(OSError):  # a worker by itself will be told the same, and say it
                self._template = Template(arguments, self._log_path("template"), environ, deadlines.start)

    def worker(self, hello: Hello, deadlines: Deadlines) -> Worker:
        """A worker with a log file of its own."""
        log_path = self._log_path(str(next(self._count)))
        return Worker(hello, deadlines, log_path, self._environ, self._template, interpreter=self._interpreter)

    def close(self) -> None:
        """From any thread: no worker is forked any more."""
        if self._template:
            self._template.close()

    def _log_path(self, name: str) -> Path:
        return self._logs / f"{self._stem}-{name}.log"


def _prune(folder: Path) -> None:
    """Keep the latest logs of lost workers only."""
    with contextlib.suppress(OSError):
        logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for old in logs[:-_MOST_LOGS]:
            old.unlink(missing_ok=True)
