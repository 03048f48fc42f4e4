"""Measures candidates in a worker process, and replaces that process whenever it is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from attnctl.gpu.client import OnPhase, Worker
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lock import DeviceLock
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import (
    CachePolicy,
    Contender,
    Environment,
    Finals,
    FinalsReply,
    Hello,
    Measure,
    Prepare,
    Prepared,
    PreparedReply,
    Result,
)
from attnctl.gpu.reserve import Reserve
from attnctl_kernels.contract import Candidate, Task


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - the default for a library without a console


class Measurer(Closing):
    """The real :class:`~attnctl.gpu.interfaces.MeasurerLike`: one device, locked, one worker at a time.

    One thread at a time may use it, and every thread that does must live as long as it (see
    :mod:`attnctl.gpu.process`). Only :meth:`interrupt` may be called from elsewhere.
    """

    def __init__(
        self,
        hello: Hello,
        deadlines: Deadlines,
        state_dir: Path,
        *,
        on_phase: OnPhase | None = None,
        on_wait: Callable[[str], None] = _to_stderr,
        lock_timeout_s: float | None = None,
        lock: bool = True,
        warm: int = 0,
    ) -> None:
        """Start a worker, and spawn ``warm`` more; lock the device, or leave that to the caller (``lock``).

        Raises:
            Unavailable: no device, a missing package, or the device stays locked.
        """
        self._hello = hello
        self._deadlines = deadlines
        self._place = WorkerPlace(state_dir, "worker")
        self.on_phase = on_phase
        self._on_wait = on_wait
        self._reserve = Reserve(lambda: self._place.worker(hello, deadlines))
        self._interrupted = False
        self._prepare: Prepare | None = None
        self._finals_held = 0
        self._worker: Worker | None = None
        self._lock: DeviceLock | None = None
        self._starting: Worker | None = None
        try:
            self._place.prefer_forks(hello, deadlines)
            first = self._reserve.take()
            first.spawn()
            self.warm_up(warm)
            self._worker, self.environment = self._started(first)
            self.compiles, self.device_count = self._worker.compiles, self._worker.device_count
            if lock:
                self.lock(lock_timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def worker_pid(self) -> int | None:
        return self._worker.pid if self._worker else None

    def lock(self, timeout_s: float | None = None) -> None:
        """Wait until nobody else measures on the device.

        Raises:
            Unavailable: it stays locked.
        """
        lock = DeviceLock(self.environment.lock_name)
        lock.acquire(self._on_wait, timeout_s)
        self._lock = lock

    def prepare(self, task: Task, cache: CachePolicy = "cold") -> Prepared:
        """Make inputs and reference for ``task``. Processes that are warm open the device meanwhile.

        Raises:
            Unavailable: the worker was lost over it, twice.
        """
        self._prepare = Prepare(task=task, cache=cache)
        self._finals_held = 0
        with self._reserve.opening():
            _, prepared = self._ready_worker(self._prepare)
        return prepared

    def measure(
        self,
        candidate: Candidate,
        best_us: float | None = None,
        *,
        max_samples: int = 2000,
        second_seed: bool = False,
        probes: bool = False,
    ) -> Result:
        """Check and time ``candidate``; whatever it does to the worker becomes its :class:`Result`.

        Raises:
            Unavailable: no worker can be had any more.
        """
        if self._prepare is None:
            raise RuntimeError("prepare() comes first")
        request = Measure(
            candidate=candidate, best_us=best_us, max_samples=max_samples, second_seed=second_seed, probes=probes
        )
        try:
            result = self._measured(request)
        except WorkerLost as lost:
            return lost.as_result()
        if result.poisoned and self._worker:
            self._worker.kill()
        return result

    def warm_up(self, count: int) -> None:
        """Spawn processes up to ``count``, ready ones included: they import the framework, and open no device yet."""
        self._reserve.warm_up(count)

    def finals(self, contenders: Sequence[Contender], cycles: int) -> FinalsReply:
        """Run ``cycles`` in a fresh process, each time on inputs of a new seed.

        A contender that crashes or hangs the process is put under ``failed``, and the others start again without it.
        Where the cycles end and nothing tells which of them it was, each is run beside the first, alone.

        Raises:
            Unavailable: the process was lost twice with no single contender to blame.
        """
        if self._prepare is None:
            raise RuntimeError("prepare() comes first")
        self._finals_held += 1
        prepare = self._fresh_seed(self._finals_held)
        failed: dict[str, Result] = {}
        unexplained = False
        while rest := tuple(each for each in contenders if each.name not in failed):
            reply = self._run_finals(prepare, rest, cycles)
            if isinstance(reply, FinalsReply):
                failed |= reply.failed
                if not any(each.poisoned for each in reply.failed.values()):
                    return reply.model_copy(update={"failed": failed})
            elif reply.subject is not None and (unexplained or reply.blamed):
                failed[reply.subject] = reply.as_result()
            else:
                in_cycles = reply.phase == "finals" and (unexplained or reply.blamed) and not self._interrupted
                culprits = self._culprits(prepare, rest, cycles) if in_cycles else {}
                if self._interrupted or (unexplained and not culprits):
                    raise reply.as_unavailable()
                failed |= culprits
                unexplained = True
        return FinalsReply(cycles=(), failed=failed)

    def prepare_finals(self, count: int) -> None:
        """Get ``count`` processes for finals ready, all at once: the device is in use meanwhile.

        A process that does not get that far is left to :meth:`finals`, which knows what to say.
        """
        self._reserve.prepare([self._fresh_seed(self._finals_held + number) for number in range(1, count + 1)])

    def interrupt(self) -> None:
        """From another thread: kill what is running, and start nothing again. Only :meth:`close` is left to call."""
        self._interrupted = True
        self._place.close()
        for worker in (self._starting, self._worker, *self._reserve.workers):
            if worker:
                worker.interrupt()

    def close(self) -> None:
        """End all worker processes and release the device."""
        self._place.close()
        workers = [*self._reserve.workers, *([self._worker] if self._worker else [])]
        for worker in workers:
            worker.dismiss()  # all together: a driver takes a moment to let go of each
        for worker in workers:
            worker.close()
        self._reserve.clear()
        self._worker = None
        if self._lock:
            self._lock.release()
            self._lock = None

    def _measured(self, request: Measure) -> Result:
        """A worker that was lost for no fault of the candidate is replaced, once."""
        assert self._prepare
        for last in (False, True):
            worker = self._worker
            if worker is None or not worker.alive:
                worker, _ = self._ready_worker(self._prepare)
            try:
                return worker.request(request, Result, self.on_phase)
            except WorkerLost as lost:
                if last or lost.blamed or self._interrupted:
                    raise
        raise AssertionError  # the loop returns or raises

    def _started(self, first: Worker | None = None) -> tuple[Worker, Environment]:
        """A fresh worker that has opened the device; one that dies on the way is replaced, once."""
        for last in (False, True):
            worker = (None if last else first) or self._reserve.take()
            self._starting = worker
            try:
                return worker, worker.start()
            except WorkerLost as lost:
                if last or lost.timed_out or self._interrupted:
                    raise lost.as_unavailable() from None
        raise AssertionError  # the loop returns or raises

    def _fresh_seed(self, number: int) -> Prepare:
        """What the ``number``-th process of the finals prepares."""
        assert self._prepare
        task = self._prepare.task
        return self._prepare.model_copy(update={"task": task.model_copy(update={"seed": task.seed + number})})

    def _finals_worker(self, prepare: Prepare) -> Worker:
        """A process that nobody has measured in, ready for ``prepare``."""
        if ready := self._reserve.take_ready():
            worker, prepared = ready
            if prepared != prepare:  # it was for another task, or one of a lost process
                worker.request(prepare, PreparedReply)
            return worker
        worker, _ = self._started()
        worker.request(prepare, PreparedReply)
        return worker

    def _run_finals(self, prepare: Prepare, contenders: Sequence[Contender], cycles: int) -> FinalsReply | WorkerLost:
        request = Finals(contenders=tuple(contenders), cycles=cycles)
        try:
            with self._finals_worker(prepare) as worker:
                reply = worker.request(request, FinalsReply, self.on_phase)
        except WorkerLost as lost:
            return lost
        return WorkerLost("finals", reply.broken.reason, result=reply.broken) if reply.broken else reply

    def _culprits(self, prepare: Prepare, contenders: Sequence[Contender], cycles: int) -> dict[str, Result]:
        """Who ends the cycles beside the first contender; that one itself if it does so without any other."""
        first = [each for each in contenders if each.candidate == contenders[0].candidate]
        if isinstance(lost := self._run_finals(prepare, first, cycles), WorkerLost):
            return {each.name: lost.as_result() for each in first}
        found = {}
        for other in contenders:
            if other not in first:
                lost = self._run_finals(prepare, (first[0], other), cycles)
                if isinstance(lost, WorkerLost) and not self._interrupted:
                    found[other.name] = lost.as_result()
        return found

    def _ready_worker(self, prepare: Prepare) -> tuple[Worker, Prepared]:
        """The worker, prepared; a lost one is replaced once."""
        for last in (False, True):
            if self._worker is None or not self._worker.alive:
                if self._worker:
                    self._worker.kill()
                self._worker, _ = self._started()
            try:
                return self._worker, self._worker.request(prepare, PreparedReply, self.on_phase).prepared
            except WorkerLost as lost:
                if last or self._interrupted:
                    raise lost.as_unavailable() from None
        raise AssertionError  # the loop returns or raises
