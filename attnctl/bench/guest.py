"""Another family's kernel in processes of its own, on a device that is already locked for this benchmark."""

from __future__ import annotations

from attnctl.bench.measured import Visit
from attnctl.bench.plan import Guest
from attnctl.bench.settings import Settings
from attnctl.errors import Unavailable
from attnctl.gpu.client import WorkerPlace
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.protocol import Contender, Cycle, Finals, FinalsReply, Hello, Prepare, PreparedReply
from attnctl.tune.finals import AGAIN


class GuestRunner:
    """Runs rounds until one fails."""

    def __init__(self, name: str, guest: Guest, device: str, settings: Settings) -> None:
        self._guest = guest
        self._settings = settings
        self._hello = Hello(family=name, arch=guest.task.arch, device=device)
        self._place = WorkerPlace(settings.state_dir, f"guest-{name}")
        self._aa = name, name + AGAIN
        self._contenders = tuple(Contender(name=each, candidate=guest.candidate) for each in self._aa)
        self._processes: list[tuple[Cycle, ...]] = []
        self._failure = ""

    def visit(self) -> Visit:
        return Visit(self._hello.family, self._aa, tuple(self._processes), self._failure)

    def round(self, cycles: int, seed: int) -> None:
        """Check and time the kernel in one fresh process, on inputs of ``seed``."""
        if self._failure:
            return
        task = self._guest.task.model_copy(update={"seed": seed})
        try:
            with self._place.worker(self._hello, self._settings.deadlines) as worker:
                worker.start()
                worker.request(Prepare(task=task, cache=self._settings.cache), PreparedReply)
                reply = worker.request(Finals(contenders=self._contenders, cycles=cycles), FinalsReply)
        except Unavailable as error:
            self._failure = f"{error.message}; {error.hint}" if error.hint else error.message
        except WorkerLost as lost:
            self._failure = f"{lost.reason} in {lost.phase}"
        else:
            for result in reply.failed.values():
                self._failure = f"{result.outcome}: {result.reason}"
            self._processes.append(reply.cycles)
