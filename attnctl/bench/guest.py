"""A kernel in processes of its own, on a device that is already locked: another family's, or another environment's."""

from __future__ import annotations

from contextlib import suppress

from attnctl.bench.measured import Visit
from attnctl.bench.plan import Guest
from attnctl.bench.settings import Settings
from attnctl.errors import Unavailable
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import Contender, Cycle, Finals, FinalsReply, Hello, Prepare, PreparedReply
from attnctl.gpu.reserve import Reserve
from attnctl.tune.finals import AGAIN


class GuestRunner:
    """Runs rounds until one fails."""

    def __init__(self, name: str, guest: Guest, device: str, settings: Settings) -> None:
        self._guest = guest
        self._settings = settings
        self._name = name
        self._hello = Hello(family=guest.task.family, arch=guest.task.arch, device=device)
        self._place = WorkerPlace(settings.state_dir, f"guest-{name}", guest.python)
        self._reserve = Reserve(lambda: self._place.worker(self._hello, settings.deadlines))
        self._aa = name, name + AGAIN
        self._contenders = tuple(Contender(name=each, candidate=guest.candidate) for each in self._aa)
        self._processes: list[tuple[Cycle, ...]] = []
        self._failure = ""
        self._versions: dict[str, str] = {}

    def visit(self) -> Visit:
        return Visit(self._name, self._aa, tuple(self._processes), self._failure, self._versions)

    def warm_up(self, count: int) -> None:
        """Let processes for ``count`` rounds import their framework, while others are measured."""
        with suppress(Unavailable, WorkerLost):  # the round says so
            self._reserve.warm_up(0 if self._failure else count)

    def close(self) -> None:
        """End the processes of rounds that did not come to pass."""
        for worker in self._reserve.workers:
            worker.kill()
        self._reserve.clear()
        self._place.close()

    def round(self, cycles: int, seed: int) -> None:
        """Check and time the kernel in one fresh process, on inputs of ``seed``.

        Raises:
            Unavailable: an interpreter that was named cannot serve.
        """
        if self._failure:
            return
        task = self._guest.task.model_copy(update={"seed": seed})
        try:
            with self._reserve.take() as worker:
                self._versions = worker.start().running_versions
                worker.request(Prepare(task=task, cache=self._settings.cache), PreparedReply)
                reply = worker.request(Finals(contenders=self._contenders, cycles=cycles), FinalsReply)
        except Unavailable as error:
            if self._guest.python:
                raise Unavailable(f"{self._guest.python}: {error.message}", error.hint) from error
            self._failure = f"{error.message}; {error.hint}" if error.hint else error.message
        except WorkerLost as lost:
            if self._guest.python and lost.phase in {"start", "prepare"}:
                unavailable = lost.as_unavailable()
                raise Unavailable(f"{self._guest.python}: {unavailable.message}", unavailable.hint) from lost
            self._failure = f"{lost.reason} in {lost.phase}"
        else:
            for result in reply.failed.values():
                self._failure = f"{result.outcome}: {result.reason}"
            self._processes.append(reply.cycles)
