"""Compile workers: processes that see no GPU and fill the family's own cache ahead of the measurements."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnctl.gpu import memory
from attnctl.gpu.client import Worker, WorkerPlace
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.protocol import Compile, CompileReply, Hello, Result
from attnctl_kernels.contract import Candidate, Task

_MEMORY_SHARE = 0.6  # of the machine, for all compile workers together


@dataclass(eq=False)
class _Job:
    request: Compile
    future: Future[Result] = field(default_factory=Future)
    dropped: bool = False  # nobody waits for it any more


class CompilePool(Closing):
    """``size`` threads, each owning one compile worker; a compiler that aborts or hangs costs one candidate."""

    def __init__(self, hello: Hello, size: int, deadlines: Deadlines, state_dir: Path) -> None:
        self.size = size
        self._hello = hello.model_copy(update={"device": "none"})
        self._deadlines = replace(
            deadlines, memory_bytes=deadlines.memory_bytes or int(_MEMORY_SHARE * memory.usable_bytes() / size)
        )
        self._place = WorkerPlace(state_dir, "compile")
        self._place.prefer_forks(self._hello, self._deadlines)
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._running: dict[_Job, Worker | None] = {}
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"compile-{index}", daemon=True) for index in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task, candidate: Candidate) -> Future[Result]:
        """Queue a candidate; they are compiled in this order. The future raises Unavailable if no worker can be had."""
        job = _Job(Compile(task=task, candidate=candidate))
        with self._changed:
            self._queue.append(job)
            self._changed.notify()
        return job.future

    def cancel(self) -> None:
        """Forget what is queued, and kill what is compiling. The pool can be used again."""
        with self._changed:
            queued, running = tuple(self._queue), dict(self._running)
            self._queue.clear()
            for job in running:
                job.dropped = True
        for job in queued:
            job.future.cancel()
            job.future.set_running_or_notify_cancel()
        for worker in running.values():
            if worker:
                worker.interrupt()

    def close(self) -> None:
        """Cancel, and wait until the workers are gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._place.close()
        self.cancel()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        worker: Worker | None = None
        try:
            with contextlib.suppress(WorkerLost):  # the pool is closed already
                worker = self._spawned()  # it imports what it needs before there is anything to do
            while (job := self._take(worker)) is not None:
                try:
                    worker, result = self._compiled(worker, job)
                    job.future.set_result(result)
                except BaseException as error:  # noqa: BLE001 - it belongs to who waits for this job
                    job.future.set_exception(error)
                finally:
                    with self._changed:
                        self._running.pop(job, None)
        finally:
            if worker:
                worker.kill()

    def _take(self, worker: Worker | None) -> _Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return None
            job = self._queue.popleft()
            job.future.set_running_or_notify_cancel()
            self._running[job] = worker
            return job

    def _spawned(self) -> Worker:
        """A fresh compile worker. It belongs to this thread, and dies with it."""
        worker = self._place.worker(self._hello, self._deadlines)
        worker.spawn()
        return worker

    def _replacement(self, job: _Job) -> Worker:
        worker = self._spawned()
        with self._changed:
            self._running[job] = worker
            if job.dropped:
                worker.interrupt()
        return worker

    def _compiled(self, worker: Worker | None, job: _Job) -> tuple[Worker, Result]:
        """The worker that is left, and the result. One that is lost for no fault of the candidate is replaced, once."""
        for last in (False, True):
            if worker is None or not worker.alive:
                if worker:
                    worker.kill()
                worker = self._replacement(job)
            if not worker.started:
                try:
                    worker.start()
                except WorkerLost as lost:
                    if last or lost.timed_out or job.dropped:
                        raise lost.as_unavailable() from None
                    continue
            try:
                return worker, worker.request(job.request, CompileReply).result
            except WorkerLost as lost:
                if last or lost.blamed or job.dropped:
                    return worker, lost.as_result()
        raise AssertionError  # the loop returns or raises
