"""Compile workers: processes that see no GPU and fill the family's own cache ahead of the measurements."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from attnctl.gpu import memory
from attnctl.gpu.client import Worker, WorkerLost, WorkerPlace
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Compile, CompileReply, Hello, Result
from attnctl_kernels.contract import Candidate, Task

_MEMORY_SHARE = 0.6  # of the machine, for all compile workers together


class CompilePool:
    """``size`` threads, each owning one compile worker; a compiler that aborts or hangs costs one candidate."""

    def __init__(self, hello: Hello, size: int, deadlines: Deadlines, state_dir: Path) -> None:
        self.size = size
        self._hello = hello.model_copy(update={"device": "none"})
        self._deadlines = replace(
            deadlines, memory_bytes=deadlines.memory_bytes or int(_MEMORY_SHARE * memory.usable_bytes() / size)
        )
        self._place = WorkerPlace(state_dir, "compile")
        self._changed = threading.Condition()
        self._queue: deque[tuple[Task, Candidate]] = deque()
        self._done: deque[tuple[Task, Candidate, Result]] = deque()
        self._outstanding: Counter[str] = Counter()  # by task: submitted, and not yet given out by completed()
        self._closed = False
        self._failure: BaseException | None = None
        self._workers: set[Worker] = set()
        self._threads = [
            threading.Thread(target=self._serve, name=f"compile-{index}", daemon=True) for index in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task, candidate: Candidate) -> None:
        """Queue a candidate; they are compiled in this order."""
        with self._changed:
            self._queue.append((task, candidate))
            self._outstanding[task.fingerprint] += 1
            self._changed.notify_all()

    def completed(self, task: Task | None = None) -> Iterator[tuple[Candidate, Result]]:
        """Results as they come, until all that was submitted (for ``task``) has been given out.

        Raises:
            Unavailable: no compile worker can be started.
        """
        while (item := self._next(task)) is not None:
            yield item

    def cancel(self) -> None:
        """Forget what is queued, kill what is compiling; ``completed`` ends."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._outstanding.clear()
            workers = tuple(self._workers)
            self._changed.notify_all()
        for worker in workers:
            worker.interrupt()

    def close(self) -> None:
        """Cancel, and wait until the workers are gone."""
        self.cancel()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next(self, task: Task | None) -> tuple[Candidate, Result] | None:
        key = task.fingerprint if task else None
        with self._changed:
            while True:
                if self._failure:
                    raise self._failure
                for item in self._done:
                    done_task, candidate, result = item
                    if key in (None, done_task.fingerprint):
                        self._done.remove(item)
                        self._outstanding[done_task.fingerprint] -= 1
                        return candidate, result
                if not (self._outstanding[key] if key else self._outstanding.total()):
                    return None
                self._changed.wait()

    def _serve(self) -> None:
        worker: Worker | None = None
        try:
            while (job := self._take()) is not None:
                task, candidate = job
                worker, result = self._compiled(worker, Compile(task=task, candidate=candidate))
                with self._changed:
                    if not self._closed:
                        self._done.append((task, candidate, result))
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - a silent end of this thread would hang completed()
            with self._changed:
                self._failure = None if self._closed else error
                self._changed.notify_all()
        finally:
            if worker:
                worker.kill()

    def _take(self) -> tuple[Task, Candidate] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            return None if self._closed else self._queue.popleft()

    def _replacement(self, lost: Worker | None) -> Worker:
        """A fresh compile worker. It belongs to this thread, and dies with it."""
        worker = self._place.worker(self._hello, self._deadlines)
        worker.spawn()
        with self._changed:
            if lost:
                self._workers.discard(lost)
            self._workers.add(worker)
            if self._closed:
                worker.interrupt()
        return worker

    def _compiled(self, worker: Worker | None, request: Compile) -> tuple[Worker, Result]:
        """The worker that is left, and the result. One that is lost for no fault of the candidate is replaced, once."""
        for last in (False, True):
            if worker is None or not worker.alive:
                worker = self._replacement(worker)
                try:
                    worker.start()
                except WorkerLost as lost:
                    if last or lost.timed_out or self._closed:
                        raise lost.as_unavailable() from None
                    continue
            try:
                return worker, worker.request(request, CompileReply).result
            except WorkerLost as lost:
                if last or lost.blamed or self._closed:
                    return worker, lost.as_result()
        raise AssertionError  # the loop returns or raises
