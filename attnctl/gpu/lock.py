"""One measuring process per device: a lock file that all users of the machine share."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from attnctl.errors import Unavailable

LOCK_FOLDER_VARIABLE = "ATTNCTL_LOCK_DIR"


class DeviceLock:
    """Held while a device is measured on. A second tune queues up; it never measures at the same time."""

    def __init__(self, device: str) -> None:
        """``device`` names the physical device: its UUID, or the CPU's slug."""
        folder = Path(os.environ.get(LOCK_FOLDER_VARIABLE) or tempfile.gettempdir())
        self.device = device
        self.path = folder / f"attnctl-{re.sub(r'[^A-Za-z0-9_.-]+', '_', device)}.lock"
        # One lock per path in this process: a tool that measures two families on one device is still one tool.
        self._lock = FileLock(self.path, mode=0o666, thread_local=False, is_singleton=True)

    def acquire(self, on_wait: Callable[[str], None], timeout_s: float | None = None) -> None:
        """Take the lock. If it is held, say so through ``on_wait`` and wait, for ever without ``timeout_s``.

        Raises:
            Unavailable: it was not released in time, or the lock file cannot be written.
        """
        try:
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                on_wait(f"{self.device} is being measured on by another attnctl; waiting for it (lock {self.path})")
                self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s, poll_interval=0.2)
        except Timeout:
            raise Unavailable(
                f"{self.device} was still in use by another attnctl after {timeout_s:g} s",
                f"wait for it to finish; the lock is {self.path}",
            ) from None
        except OSError as error:
            raise Unavailable(
                f"cannot lock {self.device}: {self.path}: {error.strerror}",
                f"name a folder that can be written in {LOCK_FOLDER_VARIABLE}",
            ) from None

    def release(self) -> None:
        self._lock.release()
