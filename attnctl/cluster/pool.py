"""Compile workers on the nodes of a cluster."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from attnctl.cluster.measurer import one_line
from attnctl.errors import Unavailable
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello, Result
from attnctl_kernels.contract import Candidate, Task

_ATTEMPTS = 3  # nodes that a candidate's compilation may lose


@dataclass(eq=False)
class _Job:
    task: Task
    candidate: Candidate
    future: Future[Result] = field(default_factory=Future)
    attempts: int = 0


class RayPool(Closing):
    """A :class:`~attnctl.gpu.interfaces.PoolLike`: a thread per actor hands it one candidate after the other."""

    def __init__(self, starts: Sequence[Callable[[], Any]], hello: Hello, deadlines: Deadlines) -> None:
        """``starts`` make an actor each; one that is lost is not replaced, one that was cancelled is."""
        self._hello = hello.model_copy(update={"device": "none"})
        self._deadlines = deadlines
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._running: dict[_Job, Any] = {}  # actors
        self._cancelled: set[_Job] = set()
        self._closed = False
        self._alive = len(starts)
        self._threads = [threading.Thread(target=self._serve, args=(each,), daemon=True) for each in starts]
        for thread in self._threads:
            thread.start()

    @property
    def size(self) -> int:
        return self._alive

    def submit(self, task: Task, candidate: Candidate) -> Future[Result]:
        """Queue a candidate. The future raises Unavailable if no compiler is left."""
        job = _Job(task, candidate)
        with self._changed:
            if self._alive:
                self._queue.append(job)
                self._changed.notify()
            else:
                job.future.set_exception(_none_left())
        return job.future

    def cancel(self) -> None:
        """Forget what is queued, and kill what is compiling. The pool can be used again."""
        with self._changed:
            queued = tuple(self._queue)
            self._queue.clear()
            self._cancelled |= self._running.keys()
            actors = tuple(self._running.values())
        for job in queued:
            job.future.cancel()
            job.future.set_running_or_notify_cancel()
        for actor in actors:
            ray.kill(actor)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.cancel()
        for thread in self._threads:
            thread.join()

    def _serve(self, start: Callable[[], Any]) -> None:
        actor = start()
        while (job := self._next(actor)) is not None:
            try:
                reply = ray.get(actor.compile.remote(self._hello, self._deadlines, job.task, job.candidate))
            except RayError as error:
                if not self._lost(job, error):
                    break
                actor = start()
                continue
            with self._changed:
                self._running.pop(job)
            if reply.error is not None:
                job.future.set_exception(Unavailable(reply.error, reply.hint))
            else:
                job.future.set_result(reply.value)
        ray.kill(actor)

    def _next(self, actor: Any) -> _Job | None:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            job = self._queue.popleft()
            self._running[job] = actor
            return job

    def _lost(self, job: _Job, error: RayError) -> bool:
        """The actor is gone. True: it was cancelled, and another may be started."""
        abandoned: tuple[_Job, ...] = ()
        with self._changed:
            self._running.pop(job)
            cancelled = job in self._cancelled
            self._cancelled.discard(job)
            job.attempts += 1
            again = not cancelled and job.attempts < _ATTEMPTS
            if not cancelled:
                self._alive -= 1
            if again and self._alive:
                self._queue.appendleft(job)
                self._changed.notify()
            if not self._alive:
                abandoned = tuple(self._queue)
                self._queue.clear()
        if cancelled:
            job.future.cancel()
            job.future.set_running_or_notify_cancel()
        elif not (again and self._alive):
            job.future.set_exception(Unavailable(f"a compile worker was lost: {one_line(error)}"))
        for each in abandoned:
            if not each.future.done():
                each.future.set_exception(_none_left())
        return cancelled


def _none_left() -> Unavailable:
    return Unavailable("all compile workers of the cluster were lost", "run it again with --resume")
