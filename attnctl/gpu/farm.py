"""The queue of a compile pool: candidates in the order in which they came, each to the next compiler that is free.

Where the compilers are, in processes of this machine or on the nodes of a cluster, is their business.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from attnctl.errors import Unavailable
from attnctl.gpu.closing import Closing
from attnctl.gpu.protocol import Result
from attnctl_kernels.contract import Candidate, Task

_ATTEMPTS = 3  # compilers that one candidate may lose, through no fault that could be told


class CompilerLost(Exception):
    """A compiler is gone, and will not come back. Its candidate may be innocent."""


class Compiler(Closing):
    """Compiles one candidate at a time, on a thread of its own."""

    def compile(self, task: Task, candidate: Candidate, wanted: Callable[[], bool]) -> Result:
        """What a compiler does to itself is a result; ``wanted`` says whether anybody waits for it still.

        Raises:
            CompilerLost: this compiler must not be asked again.
            Unavailable: it cannot serve.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """From another thread: give up what is compiling, soon."""
        raise NotImplementedError


@dataclass(eq=False)
class Job:
    task: Task
    candidate: Candidate
    future: Future[Result] = field(default_factory=Future)
    lost: int = 0  # compilers
    dropped: bool = False  # nobody waits for it any more

    def drop(self) -> None:
        self.future.cancel()
        self.future.set_running_or_notify_cancel()


class Farm(Closing):
    """A :class:`~attnctl.gpu.interfaces.PoolLike`: a thread per compiler."""

    def __init__(self, makers: Sequence[Callable[[], Compiler]]) -> None:
        """``makers`` make a compiler each, on its thread. A lost one is not replaced, a cancelled one is.

        Of one that cannot be made the others do the work: a machine may have more cores than processes to give.
        """
        self._changed = threading.Condition()
        self._queue: deque[Job] = deque()
        self._jobs: dict[tuple[str, str], Job] = {}  # by task and candidate, until they are dropped
        self._running: dict[Job, Compiler] = {}
        self._closed = False
        self._alive = len(makers)
        self._last_loss = ""  # why a compiler was lost
        self._threads = [
            threading.Thread(target=self._serve, args=(each,), name=f"compile-{number}", daemon=True)
            for number, each in enumerate(makers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def size(self) -> int:
        """Compilers that are left."""
        return self._alive

    def submit(self, task: Task, candidate: Candidate) -> Future[Result]:
        """Queue a candidate. The future raises Unavailable if no compiler can be had.

        Nothing is compiled twice: who asks for a candidate again shares the future.
        """
        key = (task.fingerprint, candidate.key)
        with self._changed:
            if known := self._jobs.get(key):
                return known.future
            job = self._jobs[key] = Job(task, candidate)
            if self._alive:
                self._queue.append(job)
                self._changed.notify()
            else:
                job.future.set_exception(self._none_left())
        return job.future

    def cancel(self) -> None:
        """Forget what is queued, and interrupt what is compiling: futures are cancelled. The farm can be used again."""
        with self._changed:
            queued, running = tuple(self._queue), dict(self._running)
            self._queue.clear()
            for job in (*queued, *running):
                job.dropped = True
                self._jobs.pop((job.task.fingerprint, job.candidate.key), None)
        for job in queued:
            job.drop()
        for compiler in running.values():
            compiler.interrupt()

    def close(self) -> None:
        """Cancel, and wait until the compilers are gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.cancel()
        for thread in self._threads:
            thread.join()

    def _serve(self, make: Callable[[], Compiler]) -> None:
        while True:
            try:
                compiler = make()
            except CompilerLost as lost:
                self._forget(lost)
                return
            try:
                if not self._work(compiler):
                    return
            finally:
                compiler.close()

    def _work(self, compiler: Compiler) -> bool:
        """Until the farm is closed or the compiler is lost. True: another may be made in its place."""
        while (job := self._take(compiler)) is not None:
            try:
                result: Result | BaseException = compiler.compile(job.task, job.candidate, lambda: not job.dropped)
            except CompilerLost as lost:
                return self._lose(job, lost)
            except BaseException as error:  # noqa: BLE001 - it belongs to who waits for this job
                result = error
            self._finish(job, result)
        return False

    def _take(self, compiler: Compiler) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return None
            job = self._queue.popleft()
            self._running[job] = compiler
            return job

    def _finish(self, job: Job, result: Result | BaseException) -> None:
        with self._changed:
            self._running.pop(job)
            dropped = job.dropped
        if dropped:
            job.drop()
        elif isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)

    def _lose(self, job: Job, lost: CompilerLost) -> bool:
        """Its candidate goes to another compiler. True: it was cancelled, so that the compiler may be made again."""
        if job.dropped:
            self._finish(job, lost)
            return True
        with self._changed:
            job.lost += 1
            again = job.lost < _ATTEMPTS and self._alive > 1
            if again:
                self._running.pop(job)
                self._queue.appendleft(job)
                self._changed.notify()
        if not again:
            self._finish(job, Unavailable(f"a compile worker was lost: {lost}"))
        self._forget(lost)
        return False

    def _forget(self, lost: CompilerLost) -> None:
        """One compiler fewer. After the last, nothing that is queued will be compiled."""
        abandoned: tuple[Job, ...] = ()
        with self._changed:
            self._alive -= 1
            self._last_loss = str(lost)
            if not self._alive:
                abandoned = tuple(self._queue)
                self._queue.clear()
        for each in abandoned:
            each.future.set_exception(self._none_left())

    def _none_left(self) -> Unavailable:
        return Unavailable(f"all compile workers were lost: {self._last_loss}", "run it again with --resume")
