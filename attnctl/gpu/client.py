"""The tool's end of one worker: requests under deadlines."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from attnctl.errors import MissingExtra, Unavailable
from attnctl.gpu import memory
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.names import gpu_names
from attnctl.gpu.process import WorkerProcess
from attnctl.gpu.protocol import (
    REPLY,
    Bye,
    Compile,
    Environment,
    Failed,
    Finals,
    Hello,
    Measure,
    Phase,
    PhaseName,
    Prepare,
    Ready,
    Reply,
    Request,
)
from attnctl.gpu.template import Template
from attnctl_kernels.contract import TARGET_VARIABLE, Frozen

OnPhase = Callable[[Phase], None]
_R = TypeVar("_R", bound=Frozen)

# Threads that spin at a barrier take the core from the one they wait for as soon as anything else runs on the machine:
# a kernel of 20 ms then takes seconds.
_WAIT_POLICY = "passive"
_POLL_S = 0.25  # how often a silent worker's life and memory are looked at
_BYE_S = 2.0
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
_SHORTAGE_HINT = "raise the limit, which `ulimit -a` shows, or start fewer compile workers: --jobs"
_MEMORY_SHARE = 0.8  # of the machine, where no limit is given
_FIRST_PHASE: dict[type[Frozen], PhaseName] = {
    Hello: "start",
    Prepare: "prepare",
    Measure: "compile",
    Finals: "finals",
    Compile: "compile",
}


class Worker(Closing):
    """One worker process. ``spawn`` returns at once, so that several can import their frameworks together."""

    def __init__(
        self,
        hello: Hello,
        deadlines: Deadlines,
        log_path: Path,
        environ: Mapping[str, str] | None = None,
        template: Template | None = None,
        *,
        interpreter: tuple[str, ...] = (sys.executable,),
    ) -> None:
        self._hello = hello
        self._interpreter = interpreter
        self._environ = environ or {}
        self._template = template
        self._deadlines = deadlines
        self._log_path = log_path
        self._memory_limit = deadlines.memory_bytes or int(_MEMORY_SHARE * memory.usable_bytes())
        self._process: WorkerProcess | None = None
        self._dismissed = False
        self._log_is_evidence = False  # of how the worker was lost; the others' would only pile up
        self.environment: Environment | None = None  # once it has started
        self.compiles = True
        self.device_count = 1

    @property
    def started(self) -> bool:
        return self.environment is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def spawn(self) -> None:
        """Start the process. One of its own begins to import the framework; a fork waits until its template has.

        Raises:
            WorkerLost: the template was closed meanwhile.
            Unavailable: the system has no process, file or descriptor to give.
        """
        if self._process is None:
            arguments, environ = command_of(self._hello)
            try:
                self._process = WorkerProcess(
                    arguments, self._log_path, {**self._environ, **environ}, self._template, self._interpreter
                )
            except EOFError:
                raise WorkerLost("start", "its template was closed", begun=False) from None
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                hint = _SHORTAGE_HINT if error.errno in _SHORTAGES else ""
                raise Unavailable(f"a worker cannot be started: {where}{error.strerror}", hint) from error

    def start(self) -> Environment:
        """Spawn if need be, then open the device, once.

        Raises:
            Unavailable: the worker runs, but cannot serve: no device, or a missing package (:class:`MissingExtra`).
            WorkerLost: it died or hung on the way.
        """
        if self.environment:
            return self.environment
        self.spawn()
        try:
            ready = self.request(self._hello, Ready)
        except Unavailable as error:
            forked = self._process is not None and self._process.forked
            self.kill()
            if isinstance(error, MissingExtra) or not forked or not gpu_names():
                raise
            assert self._template
            self._template.retire()  # a driver that does not bear the fork would say that there is no device
            return self.start()
        self.compiles, self.device_count = ready.compiles, ready.device_count
        self.environment = ready.environment
        return self.environment

    def request(self, request: Request, reply_type: type[_R], on_phase: OnPhase | None = None) -> _R:
        """Send ``request`` and wait for its reply.

        Raises:
            Unavailable: the worker answered :class:`Failed`.
            WorkerLost: no reply will come.
        """
        try:
            reply = self._exchange(request, on_phase)
        except BaseException:  # Ctrl-C too: nobody is left to read the answer
            self.kill()
            raise
        if isinstance(reply, Failed):
            if reply.extra:
                raise MissingExtra(reply.reason, reply.extra)
            raise Unavailable(reply.reason, reply.hint)
        if not isinstance(reply, reply_type):
            raise self._lost(_FIRST_PHASE[type(request)], f"answered {type(reply).__name__} to {request.op}")
        return reply

    def dismiss(self) -> None:
        """Ask the worker to leave, and do not wait for it. Only ``close`` may follow."""
        if self._process is not None and self._process.alive and not self._dismissed:
            self._dismissed = True
            self._process.send(Bye().model_dump_json().encode(), time.monotonic() + _BYE_S)
            self._process.close_requests()

    def close(self) -> None:
        """Ask the worker to leave; kill what is still there after a moment."""
        self.dismiss()
        if self._process is not None and self._process.alive:
            self._process.exit_reason(_BYE_S)
        self.kill()

    def interrupt(self) -> None:
        """Kill the process from another thread; the thread that waits for a reply gets :class:`WorkerLost`."""
        if process := self._process:
            process.signal_kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = self.environment = None
            if not self._log_is_evidence:
                self._log_path.unlink(missing_ok=True)

    def _exchange(self, request: Request, on_phase: OnPhase | None) -> Reply:
        phase = Phase(name=_FIRST_PHASE[type(request)])
        process = self._process
        if process is None:
            raise WorkerLost(phase.name, "not running")
        process.mark_log()
        begun = False
        kills_before = memory.oom_kills()
        deadline = time.monotonic() + self._deadlines.of(phase.name)
        process.send(request.model_dump_json().encode(), deadline)  # a failure shows as the end of the replies
        while True:
            try:
                line = process.receive(min(_POLL_S, max(0.0, deadline - time.monotonic())))
                reply = None if line is None else REPLY.validate_json(line)
            except EOFError:
                raise self._died(phase, kills_before, begun=begun) from None
            except ValidationError as error:
                raise self._lost(phase.name, f"sent a malformed reply ({error.error_count()} errors)") from None
            if isinstance(reply, Phase):
                begun = True
                phase = reply
                deadline = time.monotonic() + self._deadlines.of(phase.name)
                if on_phase:
                    on_phase(phase)
            elif reply is not None:
                return reply
            elif time.monotonic() >= deadline:
                reason = f"deadline of {self._deadlines.of(phase.name):g} s passed in {phase.name}"
                raise self._lost(phase.name, reason, timed_out=True, subject=phase.subject)
            elif not process.alive:  # and something that it forked holds the pipe open
                raise self._died(phase, kills_before, begun=begun)
            else:
                self._watch_memory(process, phase)

    def _watch_memory(self, process: WorkerProcess, phase: Phase) -> None:
        held = process.resident_bytes()
        if held > self._memory_limit:
            doing = "while compiling" if phase.name == "compile" else f"in {phase.name}"
            limit = f"{held / 2**30:.1f} GiB, the limit is {self._memory_limit / 2**30:.1f} GiB"
            reason = f"out of memory {doing}: the process held {limit}"
            raise self._lost(phase.name, reason, out_of_memory=True, subject=phase.subject)

    def _died(self, phase: Phase, kills_before: int, *, begun: bool) -> WorkerLost:
        process = self._process
        reason = (process.exit_reason() if process else "") or "closed its pipe without exiting"
        starved = reason == "killed by SIGKILL" and memory.oom_kills() > kills_before
        if starved:
            reason += " by the system's out-of-memory killer"
        return self._lost(phase.name, reason, out_of_memory=starved, subject=phase.subject, begun=begun)

    def _lost(
        self,
        phase: PhaseName,
        reason: str,
        *,
        timed_out: bool = False,
        out_of_memory: bool = False,
        subject: str | None = None,
        begun: bool = True,
    ) -> WorkerLost:
        tail = self._process.log_tail() if self._process else ""
        self._log_is_evidence = True
        self.kill()
        return WorkerLost(
            phase, reason, timed_out=timed_out, out_of_memory=out_of_memory, tail=tail, subject=subject, begun=begun
        )


def command_of(hello: Hello) -> tuple[tuple[str, ...], dict[str, str]]:
    """Arguments and extra environment of a worker for ``hello``; one that opens no device cannot see any either."""
    environ = {} if "OMP_WAIT_POLICY" in os.environ else {"OMP_WAIT_POLICY": _WAIT_POLICY}
    if hello.device == "none":
        target = {TARGET_VARIABLE: hello.arch} if hello.arch else {}  # compilers read it before the first request
        blind = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        return ("--family", hello.family, "--background"), {**environ, **blind, **target}
    return ("--family", hello.family), environ
