"""Processes that are got ready before anything is asked of them: they have imported, opened the device, made inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from attnctl.errors import Unavailable
from attnctl.gpu.client import Worker
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.protocol import Prepare, PreparedReply


class Reserve:
    """One that does not get as far as it should is left to whoever needs it, and knows what to say."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._warm: deque[Worker] = deque()
        self._ready: deque[tuple[Worker, Prepare]] = deque()

    @property
    def workers(self) -> list[Worker]:
        return [*self._warm, *(worker for worker, _ in self._ready)]

    def warm_up(self, count: int) -> None:
        """Spawn processes up to ``count``, ready ones included."""
        while len(self.workers) < count:
            worker = self._make()
            worker.spawn()
            self._warm.append(worker)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Warm processes open the device while the block runs. They cannot be taken meanwhile."""
        warm = tuple(self._warm)
        self._warm.clear()
        with self._side_by_side(warm) as threads:
            opened = [threads.submit(_can, each.start) for each in warm]
            yield
        self._warm.extend(_kept(warm, [each.result() for each in opened]))

    def prepare(self, prepares: Sequence[Prepare]) -> None:
        """One process for each, all at once."""
        self.warm_up(len(prepares))
        workers = [self._warm.popleft() for _ in prepares]

        def get_ready(worker: Worker, prepare: Prepare) -> bool:
            return _can(worker.start) and _can(lambda: worker.request(prepare, PreparedReply))

        with self._side_by_side(workers) as threads:
            ready = list(threads.map(get_ready, workers, prepares))
        kept = set(_kept(workers, ready))
        self._ready.extend(pair for pair in zip(workers, prepares, strict=True) if pair[0] in kept)

    def take(self) -> Worker:
        """One that is warm if there is one."""
        while self._warm:
            worker = self._warm.popleft()
            if worker.alive:
                return worker
            worker.kill()
        return self._make()

    def take_ready(self) -> tuple[Worker, Prepare] | None:
        """One that is alive, and what it is ready for."""
        while self._ready:
            worker, prepare = self._ready.popleft()
            if worker.alive:
                return worker, prepare
            worker.kill()
        return None

    def clear(self) -> None:
        self._warm.clear()
        self._ready.clear()

    @contextmanager
    def _side_by_side(self, workers: Sequence[Worker]) -> Iterator[ThreadPoolExecutor]:
        """A thread for each of ``workers``."""
        with ThreadPoolExecutor(max(1, len(workers))) as threads:
            try:
                yield threads
            except BaseException:  # Ctrl-C: the threads end with their workers
                for worker in workers:
                    worker.interrupt()
                self._warm.extend(workers)  # they are still to be closed
                raise


def _kept(workers: Sequence[Worker], well: Sequence[bool]) -> list[Worker]:
    for worker, is_well in zip(workers, well, strict=True):
        if not is_well:
            worker.kill()
    return [worker for worker, is_well in zip(workers, well, strict=True) if is_well]


def _can(work: Callable[[], object]) -> bool:
    try:
        work()
    except (WorkerLost, Unavailable):
        return False
    return True
