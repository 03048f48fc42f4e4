"""One worker process: spawn it, talk over pipes of its own, kill it with all that it started.

Kernels and compilers print to stdout and stderr, so requests and replies travel over two more file descriptors, whose
numbers are arguments, and the standard streams go to a log file.

On Linux a worker is killed when the *thread* that spawned it ends (see prctl(2), PR_SET_PDEATHSIG): spawn it on the
thread that uses it. One that was forked from a template hangs on the tool's main thread.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from attnctl.gpu import memory
from attnctl.gpu.template import Template

_KILL_GRACE_S = 10.0
_TAIL_BYTES = 4096


class _Started(Protocol):
    """What is asked of a :class:`subprocess.Popen`, and of a fork."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...


class WorkerProcess:
    """A ``python -m attnctl.worker``: a fork of ``template`` where there is one that can, else a process of its own.

    Raises:
        EOFError: the template was closed meanwhile.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        log_path: Path,
        environ: Mapping[str, str],
        template: Template | None = None,
        interpreter: tuple[str, ...] = (sys.executable,),
    ) -> None:
        self._log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        self._buffer = b""
        self.forked = False
        try:
            with log_path.open("ab") as log:
                self._log_start = log.tell()
                self._started: _Started
                if template and (fork := template.fork(request_end, reply_end, log.fileno())):
                    self._started, self.forked = fork, True
                else:
                    command = (*interpreter, "-m", "attnctl.worker", *arguments)
                    self._started = _executed(command, environ, log, request_end, reply_end)
        except BaseException:
            os.close(self._requests)
            os.close(self._replies)
            raise
        finally:
            os.close(request_end)
            os.close(reply_end)
        os.set_blocking(self._requests, False)

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def alive(self) -> bool:
        return self._started.poll() is None

    def send(self, line: bytes, deadline: float) -> bool:
        """Write a line; False if the worker is gone or does not read until ``deadline`` (monotonic)."""
        rest = memoryview(line + b"\n")
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_WRITE)
            while rest:
                try:
                    rest = rest[os.write(self._requests, rest) :]
                except BlockingIOError:
                    if not selector.select(max(0.0, deadline - time.monotonic())):
                        return False
                except BrokenPipeError:
                    return False
        return True

    def receive(self, seconds: float) -> bytes | None:
        """The next line, or None after ``seconds``.

        Raises:
            EOFError: the worker has closed its end.
        """
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                chunk = os.read(self._replies, 1 << 16)
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def resident_bytes(self) -> int:
        """Memory that the worker and what it has started hold now; 0 where the system does not say."""
        return memory.resident_bytes(self.pid)

    def exit_reason(self, seconds: float = _KILL_GRACE_S) -> str:
        """Why the worker ended; empty if it is still running after ``seconds``."""
        try:
            code = self._started.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        return f"exited with status {code}"

    def mark_log(self) -> None:
        """From here on, ``log_tail`` shows what is written after this moment."""
        with contextlib.suppress(OSError):
            self._log_start = self._log_path.stat().st_size

    def log_tail(self) -> str:
        """The end of what the worker has printed since the last mark."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def close_requests(self) -> None:
        """Let the worker see the end of its requests: an idle one exits by itself."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def signal_kill(self) -> None:
        """SIGKILL to the worker's process group; its owner will see the end of the replies."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker's process group and reap it. Never waits for ever; may be called twice."""
        self.signal_kill()
        with contextlib.suppress(subprocess.TimeoutExpired, ChildProcessError):  # stuck in a driver: it is gone for us
            self._started.wait(_KILL_GRACE_S)
            while os.waitpid(-self.pid, os.WNOHANG)[0]:  # what the worker had started, where the tool has adopted it
                pass
        self.close_requests()
        if self._replies >= 0:
            os.close(self._replies)
            self._replies = -1


def _executed(
    command: tuple[str, ...], environ: Mapping[str, str], log: IO[bytes], request_end: int, reply_end: int
) -> _Started:
    pipes = ("--requests", str(request_end), "--replies", str(reply_end), "--parent", str(os.getpid()))
    return subprocess.Popen(
        [*command, *pipes],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **environ},
        pass_fds=(request_end, reply_end),
        start_new_session=True,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
