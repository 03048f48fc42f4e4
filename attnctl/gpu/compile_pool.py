"""Compile workers: processes that see no GPU and fill the family's own cache ahead of the measurements."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from attnctl.errors import Unavailable
from attnctl.gpu import memory
from attnctl.gpu.client import Worker
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.farm import Compiler, CompilerLost, Farm
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import Compile, CompileReply, Hello, Result
from attnctl_kernels.contract import Candidate, Outcome, Task

_MEMORY_SHARE = 0.6  # of the machine, for all compile workers together


class CompilePool(Farm):
    """``size`` compile workers; a compiler that aborts, hangs or eats memory costs one candidate."""

    def __init__(self, hello: Hello, size: int, deadlines: Deadlines, state_dir: Path) -> None:
        hello = hello.model_copy(update={"device": "none"})
        share = int(_MEMORY_SHARE * memory.usable_bytes() / size)
        deadlines = replace(deadlines, memory_bytes=deadlines.memory_bytes or share)
        self._place = WorkerPlace(state_dir, "compile")
        self._place.prefer_forks(hello, deadlines)
        super().__init__([partial(ProcessCompiler, partial(self._place.worker, hello, deadlines))] * size)

    def close(self) -> None:
        self._place.close()  # before the threads are waited for: some may be waiting for a fork
        super().close()


class ProcessCompiler(Compiler):
    """One compile worker after the other. They belong to the thread that makes this, and die with it.

    Raises:
        CompilerLost: here and in ``compile``, the system has no process or file to give.
    """

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self.worker = make()
        with contextlib.suppress(WorkerLost):  # the pool is closed already
            self._spawn()  # it imports what it needs before there is anything to do

    def compile(self, task: Task, candidate: Candidate, wanted: Callable[[], bool]) -> Result:
        """A worker that is lost for no fault of the candidate is replaced, once."""
        for last in (False, True):
            if not self.worker.alive:
                self.worker.kill()
                self.worker = self._make()
            if not wanted():  # whoever has changed his mind since interrupts the worker that is there now
                return Result(outcome=Outcome.SKIPPED)
            try:
                self._spawn()
                self.worker.start()
            except WorkerLost as lost:
                if last or lost.timed_out or not wanted():
                    raise lost.as_unavailable() from None
                continue
            try:
                return self.worker.request(Compile(task=task, candidate=candidate), CompileReply).result
            except WorkerLost as lost:
                if last or lost.blamed or not wanted():
                    return lost.as_result()
        raise AssertionError  # the loop returns or raises

    def _spawn(self) -> None:
        try:
            self.worker.spawn()
        except Unavailable as error:
            raise CompilerLost(error.message) from error

    def interrupt(self) -> None:
        self.worker.interrupt()

    def close(self) -> None:
        self.worker.kill()
