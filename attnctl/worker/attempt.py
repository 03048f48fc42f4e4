"""One candidate on the device: bind, first call, check, time. An exception of the kernel ends here, as a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from attnctl.gpu.protocol import Measure, PhaseName, Result
from attnctl.worker import failures
from attnctl.worker.check import Checker
from attnctl.worker.probes import Probes
from attnctl.worker.setup import Setup
from attnctl.worker.timing import screen
from attnctl_kernels.contract import Call, Candidate, Family, Launcher, Outcome

Announce = Callable[..., None]  # (phase, subject=None)


@dataclass
class Attempt:
    """Tries candidates of one family on one setup."""

    family: Family
    launcher: Launcher
    setup: Setup
    probes: Probes
    announce: Announce
    _seconds: dict[str, float] = field(default_factory=dict)
    _phase: PhaseName = "compile"

    def measure(self, request: Measure) -> Result:
        """Check, then time."""
        self._seconds = {}
        try:
            result = self._measured(request)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is its outcome
            result = self._failed(error)
        if result.outcome is not Outcome.OK:
            failures.collect(self.setup.device)
        return result

    def qualify(self, candidate: Candidate, subject: str) -> Call | Result:
        """A checked call that is ready to be timed in finals, or why there is none."""
        self._seconds = {}
        try:
            call, checker = self._bound(candidate, subject)
            with self._in_phase("check", subject):
                checker.check(self._sparse_block(candidate), finalist=True)
        except Exception as error:  # noqa: BLE001 - as above
            call = self._failed(error)
        if isinstance(call, Result):
            failures.collect(self.setup.device)
        return call

    def _measured(self, request: Measure) -> Result:
        candidate, setup = request.candidate, self.setup
        call, checker = self._bound(candidate)
        with self._in_phase("check"):
            check = checker.check(self._sparse_block(candidate), winner=request.second_seed)
            if request.probes or not compiles(self.launcher):
                notes = self.probes.run(candidate, self._sparse_block(candidate))
                check = check.model_copy(update={"notes": check.notes + notes})
        with self._in_phase("timing"):
            timing = screen(
                setup.device,
                call.run,
                setup.cache,
                best_us=request.best_us,
                max_samples=request.max_samples,
                between=checker.watch if setup.cache == "cold" else None,  # watching evicts what warm runs rely on
            )
            checker.check_watched()
        return Result(outcome=Outcome.OK, timing=timing, check=check, seconds=self._seconds)

    def _bound(self, candidate: Candidate, subject: str | None = None) -> tuple[Call, Checker]:
        with self._in_phase("compile", subject):
            call = self.setup.bind(self.launcher, candidate)
        checker = Checker(self.setup, call)
        with self._in_phase("first_call", subject):
            checker.first_run()
        return call, checker

    def _sparse_block(self, candidate: Candidate) -> tuple[int, int] | None:
        task = self.setup.task
        return candidate.sparse_block or self.family.sparse_block(task.problem, task.pass_name, candidate.config)

    def _failed(self, error: Exception) -> Result:
        result = failures.as_result(error, self._phase, self.setup.device)
        return result.model_copy(update={"seconds": self._seconds})

    @contextmanager
    def _in_phase(self, name: PhaseName, subject: str | None = None) -> Iterator[None]:
        self._phase = name
        self.announce(name, subject)
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = time.perf_counter() - begun


def compiles(launcher: Launcher) -> bool:
    """Whether binding costs a compilation that can be done ahead."""
    return getattr(launcher, "compiles", True)
