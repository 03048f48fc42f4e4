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
from attnctl.gpu.interfaces import MeasurerLike
from attnctl.gpu.protocol import Contender, Cycle, Prepared
from attnctl.tune.finals import PROCESSES

Say = Callable[[str], None]


def run(plan: Plan, profile: str, measurer: MeasurerLike, settings: Settings, say: Say) -> Match:
    """Measure and compare; where the gate cannot tell, once more with twice the cycles."""
    if plan.head not in plan.contenders:
        return unmeasured(plan, profile, measurer.environment, settings)
    prepared = measurer.prepare(plan.task, settings.cache)

    def once(cycles: int) -> Match:
        measured = _measure(plan, measurer, prepared, settings, cycles=cycles, say=say)
        match = match_of(measured, profile, settings)
        return match if settings.band is None else judged(match, measured, settings.band)

    match = once(settings.cycles)
    if any(each.verdict is GateVerdict.INCONCLUSIVE for each in match.gate):
        say("the gate is inconclusive: once more, with twice the cycles")
        match = once(2 * settings.cycles)
    return match


def _measure(
    plan: Plan, measurer: MeasurerLike, prepared: Prepared, settings: Settings, *, cycles: int, say: Say
) -> Measured:
    """Every process checks every config, on inputs of its own, before it times any."""
    slots = [Contender(name=name, candidate=each) for name, each in plan.contenders.items()]
    slots.append(Contender(name=plan.aa[1], candidate=plan.contenders[plan.head]))
    guests = [GuestRunner(name, each, measurer.environment.device, settings) for name, each in plan.guests.items()]
    processes: list[tuple[Cycle, ...]] = []
    failed: dict[str, str] = {}
    measurer.warm_up(PROCESSES)
    for number in range(1, PROCESSES + 1):
        say(f"process {number} of {PROCESSES}: {len(plan.contenders) + len(guests)} configs, {cycles} cycles each")
        reply = measurer.finals(slots, cycles)
        failed |= {name: f"{result.outcome}: {result.reason}" for name, result in reply.failed.items()}
        processes.append(reply.cycles)
        for guest in guests:
            guest.round(cycles, seed=number)
    return Measured(
        plan=plan,
        environment=measurer.environment,
        prepared=prepared,
        cycles=cycles,
        processes=tuple(processes),
        failed=failed,
        guests=tuple(each.visit() for each in guests),
    )
