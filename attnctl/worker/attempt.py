"""One candidate on the device: bind, first call, check, time. An exception of the kernel ends here, as a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from attnctl.gpu.probe_problems import dense_task
from attnctl.gpu.protocol import Measure, PhaseName, Result
from attnctl.worker import failures
from attnctl.worker.check import Checker
from attnctl.worker.compare import WrongResult
from attnctl.worker.graphs import CALLS, Timed, is_short
from attnctl.worker.probes import Probes
from attnctl.worker.setup import Setup
from attnctl.worker.timing import host_us, screen
from attnctl_kernels.contract import Call, Candidate, Family, Launcher, Outcome

Announce = Callable[..., None]  # (phase, subject=None)
_DENSE_SAMPLES = 10
_SPEED_UP = 0.9  # of the time without a mask, at most
_SCRIBBLED = "writes into memory that it was not given: inputs or references that are kept apart have changed"


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
        if not result.poisoned and not self.setup.is_intact():
            result = Result(outcome=Outcome.WRONG_RESULT, reason=_SCRIBBLED, seconds=self._seconds, poisoned=True)
        if result.outcome is not Outcome.OK:
            failures.collect(self.setup.device)
        return result

    def qualify(self, candidate: Candidate, subject: str) -> Timed | Result:
        """A checked candidate that is ready to be timed in finals, or why there is none."""
        self._seconds = {}
        timed: Timed | Result
        try:
            call, checker = self._bound(candidate, subject)
            with self._in_phase("check", subject):
                checker.check(self._sparse_block(candidate), finalist=True)
                timed = self._timed(candidate, call, checker)
        except Exception as error:  # noqa: BLE001 - as above
            timed = self._failed(error)
        if not (isinstance(timed, Result) and timed.poisoned) and not self.setup.is_intact():
            timed = Result(outcome=Outcome.WRONG_RESULT, reason=_SCRIBBLED, seconds=self._seconds, poisoned=True)
        if isinstance(timed, Result):
            failures.collect(self.setup.device)
        return timed

    def still_right(self, timed: Mapping[str, Timed]) -> dict[str, Result]:
        """After the cycles, in which contenders ran beside each other: those whose latest outputs are wrong.

        Raises:
            WrongResult: one of them has written into memory that it was not given.
        """
        if not self.setup.is_intact() or self.setup.main.changed(self.setup.live):
            raise WrongResult(_SCRIBBLED)
        found = {}
        for name, each in timed.items():
            try:
                for call in each.held:
                    Checker(self.setup, call).check_latest_run()
            except WrongResult as error:
                reason = f"beside the other contenders: {error}"
                found[name] = Result(outcome=Outcome.WRONG_RESULT, reason=reason)
        return found

    def _timed(self, candidate: Candidate, call: Call, checker: Checker) -> Timed:
        """The call itself, or a graph of calls where the task is short and the family's kernels can be recorded."""
        setup = self.setup
        if not (getattr(self.launcher, "captures", False) and is_short(setup.task)):
            return Timed(call.run, held=(call,))
        copies = [self.launcher.bind(setup.task, candidate, setup.exported(each)) for each in setup.copies]
        for each in copies:  # what a first run loads cannot be recorded
            each.run()
        setup.device.synchronize()
        replay = setup.device.capture([each.run for each in (call, *copies)])
        if replay is None:
            return Timed(call.run, held=(call,))
        for each in copies:
            each.poison()
        replay()
        setup.device.synchronize()
        for each in copies:
            checker.check_copy(each)
        return Timed(replay, CALLS, (call, *copies))

    def _measured(self, request: Measure) -> Result:
        candidate, setup = request.candidate, self.setup
        call, checker = self._bound(candidate)
        with self._in_phase("check"):
            check = checker.check(self._sparse_block(candidate), winner=request.second_seed)
            if request.probes or not compiles(self.launcher):
                notes = self.probes.run(candidate, self._sparse_block(candidate))
                check = check.model_copy(update={"notes": check.notes + notes})
        with self._in_phase("timing"):
            timed = self._timed(candidate, call, checker)
            timing = screen(
                setup.device,
                timed.run,
                setup.cache,
                calls=timed.calls,
                best_us=request.best_us,
                max_samples=request.max_samples,
                between=checker.watch if setup.cache == "cold" else None,  # watching evicts what warm runs rely on
            )
            checker.check_watched()
            build_lists = getattr(call, "build_lists", None)
            lists_us = host_us(setup.device, build_lists) if build_lists else None
            if request.probes and not timed.calls:
                check = check.model_copy(update={"warnings": self._warnings(candidate, timing.median_us)})
        return Result(outcome=Outcome.OK, timing=timing, check=check, lists_us=lists_us, seconds=self._seconds)

    def _warnings(self, candidate: Candidate, median_us: float) -> tuple[str, ...]:
        """Whether the kernel is faster for what it may skip. Only times are compared, so any inputs will do."""
        task = dense_task(self.setup.task)
        if task is None:
            return ()
        try:
            dense = self.launcher.bind(task, candidate, self.setup.exported())
            dense_us = screen(self.setup.device, dense.run, self.setup.cache, max_samples=_DENSE_SAMPLES).median_us
        except Exception:  # noqa: BLE001 - it need not run without its mask
            return ()
        if median_us <= _SPEED_UP * dense_us:
            return ()
        return (f"no speed-up from sparsity: {median_us:.1f} us, and {dense_us:.1f} us without the mask",)

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
