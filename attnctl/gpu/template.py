"""Workers without the wait: a process that has imported a family's framework, and forks into as many as are wanted.

Importing PyTorch and a kernel's compiler keeps a core busy for seconds, and a sweep starts a worker per core, a few
more for the finals, and one for each that a candidate has taken down. A template imports once. What it forks into is a
worker in which nothing has run yet; the device is opened after the fork, in each by itself.

A template says itself whether that is safe (see :mod:`attnctl.worker.forks`); where it is not, and on other systems
than Linux, workers are started one by one. The tool adopts the forks (prctl(2), PR_SET_CHILD_SUBREAPER), so that it
hears of their end as of any child's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

FORK_VARIABLE = "ATTNCTL_FORK"  # "0": start every worker by itself

_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_SLEEP_S = 0.05


class Forked:
    """A fork, as :class:`subprocess.Popen` would show it. The tool has become its parent."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # it never became ours: the tool's life is not what its life hangs on
                self._code = -signal.SIGKILL
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float) -> int:
        """Raises subprocess.TimeoutExpired."""
        end, sleep_s = time.monotonic() + timeout, 0.001
        while (code := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            time.sleep(sleep_s)
            sleep_s = min(2 * sleep_s, _LONGEST_SLEEP_S)
        return code


class Template:
    """Belongs to the thread that makes it, which must live as long as its workers. Any thread may ask for a fork."""

    def __init__(
        self, arguments: tuple[str, ...], log_path: Path, environ: Mapping[str, str], deadline_s: float
    ) -> None:
        self._log_path = log_path
        self._lock = threading.Lock()
        self._usable = True
        self.closed = False
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(deadline_s)
        forks = ("--forks", str(theirs.fileno()), "--parent", str(os.getpid()))
        with theirs, log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "attnctl.worker", *forks, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ, **environ},  # numpy's would start threads
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fork(self, requests: int, replies: int, log: int) -> Forked | None:
        """A worker that serves these descriptors; None if the template cannot fork. Waits until it has imported.

        Raises:
            EOFError: it was closed meanwhile.
        """
        with self._lock:
            if self._usable:
                try:
                    socket.send_fds(self._socket, [b"fork"], [requests, replies, log])
                    pid = int(self._socket.recv(32) or b"0")
                except OSError:  # it took too long, or is gone
                    pid = 0
                if pid:
                    return Forked(pid)
            if self.closed:
                raise EOFError
            self._retire()
            return None

    def retire(self) -> None:
        """Fork no more: workers are started one by one."""
        with self._lock:
            self._retire()

    def close(self) -> None:
        """From any thread; who waits for a fork gets EOFError."""
        self.closed = True
        if self._popen.returncode is None:  # before the lock, which who waits for the template holds
            self._kill()
        with self._lock:
            self._retire()
            self._socket.close()

    def _retire(self) -> None:
        if self._usable:
            self._usable = False
            self._kill()
            self._popen.wait()
            self._log_path.unlink(missing_ok=True)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)


def can_fork() -> bool:
    """Whether this system has what templates need; from here on this process adopts what its children leave behind."""
    if sys.platform != "linux" or os.environ.get(FORK_VARIABLE) == "0":
        return False
    return int(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0
