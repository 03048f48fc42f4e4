"""What runs on the nodes: a device, or a compiler, each with its worker processes.

An actor answers with a :class:`Reply`, never with an exception of its own: what reaches the driver as an exception is
the loss of the actor or its node.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnctl.errors import AttnctlError, MissingExtra
from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Hello
from attnctl.state import CACHE_FOLDER_VARIABLE
from attnctl_kernels.contract import Candidate, Task


@dataclass(frozen=True, slots=True)
class Reply:
    value: Any = None
    error: str | None = None  # why there is no value
    hint: str = ""
    extra: str | None = None  # the optional dependency group that is missing there


@dataclass(frozen=True, slots=True)
class Facts:
    """About a device that has been opened."""

    environment: Any
    compiles: bool
    host: str


def _replied(work: Callable[[], Any]) -> Reply:
    try:
        return Reply(work())
    except MissingExtra as error:
        return Reply(error=error.message, hint=error.hint, extra=error.extra)
    except AttnctlError as error:
        return Reply(error=error.message, hint=error.hint)


def _folder(cache: str | None) -> Path:
    """Logs of this node; and, where all nodes see it, the cache that compilers fill for the devices."""
    if cache is not None:
        os.environ[CACHE_FOLDER_VARIABLE] = cache
    return Path(tempfile.gettempdir()) / f"attnctl-ray-{os.getuid()}"


class DeviceActor:
    """One device. Its calls come one after the other, on the thread that its worker processes hang on."""

    def __init__(self, cache: str | None) -> None:
        self._state = _folder(cache)
        self._measurer: Measurer | None = None

    def open(self, hello: Hello, deadlines: Deadlines, lock_timeout_s: float) -> Reply:
        """Start a worker, and lock the device on its node."""

        def opened() -> Facts:
            self._measurer = Measurer(hello, deadlines, self._state, lock_timeout_s=lock_timeout_s)
            return Facts(self._measurer.environment, self._measurer.compiles, platform.node())

        return _replied(opened)

    def call(self, name: str, *args: Any, **options: Any) -> Reply:
        """One of the measurer's methods."""
        return _replied(lambda: getattr(self._measurer, name)(*args, **options))

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None


class CompilerActor:
    """One compile worker, which sees no GPU."""

    def __init__(self, cache: str) -> None:
        self._state = _folder(cache)
        self._pool: CompilePool | None = None

    def sees(self, path: str) -> bool:
        """Whether a file of the driver is here too: without a shared cache, compiling here helps nobody."""
        return Path(path).is_file()

    def compile(self, hello: Hello, deadlines: Deadlines, task: Task, candidate: Candidate) -> Reply:
        if self._pool is None:
            self._pool = CompilePool(hello, 1, deadlines, self._state)
        pool = self._pool
        return _replied(lambda: pool.submit(task, candidate).result())
