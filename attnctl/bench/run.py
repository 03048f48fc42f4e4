"""Measure a plan: interleaved finals in fresh processes, other families in turn with them."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.bench.gate import GateVerdict
from attnctl.bench.guest import GuestRunner
from attnctl.bench.judge import judged
from attnctl.bench.measured import Measured
from attnctl.bench.plan import Plan
from attnctl.bench.result import Match
from attnctl.bench.rows import match_of, unmeasured
from attnctl.bench.settings import Settings
from attnctl.gpu.closing import Closing
from attnctl.gpu.interfaces import MeasurerLike
from attnctl.gpu.protocol import Contender, Cycle
from attnctl.tune.finals import PROCESSES

Say = Callable[[str], None]


def run(plan: Plan, profile: str, measurer: MeasurerLike, settings: Settings, say: Say) -> Match:
    """Measure and compare. Unless its gate passes, it is repeated once, with twice the cycles; all processes count.

    A gate that fails must fail again: levels that change from process to process can agree in three by chance.
    """
    if plan.head not in plan.contenders:
        return unmeasured(plan, profile, measurer.environment, settings)
    with _Recording(plan, measurer, settings, say) as recording:
        recording.add(settings.cycles)
        match = _match(recording.measured(), profile, settings)
        if any(each.verdict is not GateVerdict.PASS and each.comparison for each in match.gate):
            say("the gate does not pass: three more processes, with twice the cycles")
            recording.add(2 * settings.cycles)
            match = _match(recording.measured(), profile, settings)
        return match


def _match(measured: Measured, profile: str, settings: Settings) -> Match:
    match = match_of(measured, profile, settings)
    return (
        match if settings.band is None else judged(match, measured, settings.band, judge_stored=settings.judge_stored)
    )


class _Recording(Closing):
    """Processes so far. Each checks every config, on inputs of its own, before it times any."""

    def __init__(self, plan: Plan, measurer: MeasurerLike, settings: Settings, say: Say) -> None:
        self._plan = plan
        self._measurer = measurer
        self._say = say
        self._prepared = measurer.prepare(plan.task, settings.cache)
        self._slots = [Contender(name=name, candidate=each) for name, each in plan.contenders.items()]
        self._slots.append(Contender(name=plan.aa[1], candidate=plan.contenders[plan.head]))
        device = measurer.environment.device
        self._guests = [GuestRunner(name, each, device, settings) for name, each in plan.guests.items()]
        self._processes: list[tuple[Cycle, ...]] = []
        self._failed: dict[str, str] = {}

    def add(self, cycles: int) -> None:
        configs = len(self._plan.contenders) + len(self._guests)
        total = len(self._processes) + PROCESSES
        self._measurer.warm_up(PROCESSES)
        for guest in self._guests:
            guest.warm_up(PROCESSES)
        while len(self._processes) < total:
            number = len(self._processes) + 1
            self._say(f"process {number} of {total}: {configs} configs, {cycles} cycles")
            reply = self._measurer.finals(self._slots, cycles)
            self._failed |= {name: f"{result.outcome}: {result.reason}" for name, result in reply.failed.items()}
            self._processes.append(reply.cycles)
            for guest in self._guests:
                guest.round(cycles, seed=number)

    def close(self) -> None:
        for guest in self._guests:
            guest.close()

    def measured(self) -> Measured:
        return Measured(
            plan=self._plan,
            environment=self._measurer.environment,
            prepared=self._prepared,
            processes=tuple(self._processes),
            failed=self._failed,
            guests=tuple(each.visit() for each in self._guests),
        )
