"""From what was recorded to the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attnctl.bench.gate import GateVerdict
from attnctl.bench.measured import Measured, Visit
from attnctl.bench.medians import compare_alternating, process_medians
from attnctl.bench.plan import BASE, Plan
from attnctl.bench.result import Gated, Latency, Match, Row
from attnctl.bench.settings import Settings
from attnctl.gpu.protocol import Cycle, Environment
from attnctl.profile.candidate import case_of
from attnctl.tune.decide import MAX_DROPPED, compare, good_cycles
from attnctl_kernels.families import get_family


def match_of(measured: Measured, profile: str, settings: Settings) -> Match:
    plan = measured.plan
    rows = (*_own(measured), *(_guest(measured, visit) for visit in measured.guests), *_not_run(plan))
    return Match(
        profile=profile,
        problem=plan.task.problem.slug,
        pass_name=plan.task.pass_name,
        device_name=measured.environment.device_name,
        cache=settings.cache,
        density=measured.prepared.density,
        processes=len(measured.processes),
        cycles=measured.cycles,
        dropped=measured.dropped,
        unstable=measured.dropped > MAX_DROPPED,
        rows=rows,
        notes=(*plan.notes, *_small_grid(measured), *_other_versions(measured)),
    )


def unmeasured(plan: Plan, profile: str, environment: Environment, settings: Settings) -> Match:
    """The config on disk breaks a rule: nothing is run."""
    return Match(
        profile=profile,
        problem=plan.task.problem.slug,
        pass_name=plan.task.pass_name,
        device_name=environment.device_name,
        cache=settings.cache,
        rows=tuple(sorted(_not_run(plan), key=lambda row: row.name != plan.head)),
        notes=tuple(plan.notes),
    )


def unchanged(plan: Plan, profile: str, environment: Environment, settings: Settings) -> Match:
    """The config on disk is the one of the base, or the base had none: there is nothing that could have regressed."""
    reason = "the same config as there" if BASE in plan.same else "there is no such problem there"
    if BASE in plan.barred:
        reason = f"the config there {plan.barred[BASE]}"
    return Match(
        profile=profile,
        problem=plan.task.problem.slug,
        pass_name=plan.task.pass_name,
        device_name=environment.device_name,
        cache=settings.cache,
        rows=(Row(plan.head, plan.task.family, plan.contenders[plan.head], note="not measured"), *_not_run(plan)),
        notes=tuple(plan.notes),
        gate=(Gated(BASE, settings.band or 0.0, GateVerdict.PASS, reason),),
    )


def _own(measured: Measured) -> Iterator[Row]:
    """Rows of the profile's own family, the config on disk first."""
    plan = measured.plan
    for name, candidate in plan.contenders.items():
        row = Row(name, plan.task.family, candidate)
        failure = measured.head_failure if name == plan.head else measured.failed.get(name, "")
        if failure:
            yield replace(row, note=failure, failed=True)
        else:
            comparison = None if name == plan.head else measured.compare(name)
            yield _timed(replace(row, comparison=comparison), measured.good, measured.prepared.flop)


def _guest(measured: Measured, visit: Visit) -> Row:
    guest = measured.plan.guests[visit.name]
    row = Row(visit.name, guest.task.family, guest.candidate, interleaved=False)
    if visit.failure:
        return replace(row, note=visit.failure, failed=True)
    name = visit.aa[0]
    floor = compare(visit.processes, *visit.aa, visit.aa, default_clock_mhz=measured.clock).floor
    theirs = process_medians(visit.processes, name, measured.clock)
    comparison = compare_alternating(measured.medians, theirs, max(floor, measured.floor))
    cycles = [each for process in good_cycles(visit.processes, measured.clock) for each in process]
    return _timed(replace(row, comparison=comparison), cycles, measured.prepared.flop)


def _timed(row: Row, cycles: Sequence[Cycle], flop: float) -> Row:
    if not cycles:
        return replace(row, comparison=None, note="every cycle was dropped for the machine's state")
    latency = Latency.of([each.samples_us[row.name] for each in cycles])
    return replace(row, latency=latency, tflops=flop / latency.median_us / 1e6)


def _not_run(plan: Plan) -> Iterator[Row]:
    for name, twin in plan.same.items():
        yield Row(name, plan.task.family, None, note=f"the same config as {twin}")
    for name, reason in plan.barred.items():
        yield Row(name, plan.task.family, None, note=reason, failed=name == plan.head)


def _other_versions(measured: Measured) -> Iterator[str]:
    """What a guest with packages of its own has differently."""
    here = measured.environment.running_versions
    for visit in measured.guests:
        if measured.plan.guests[visit.name].python is None:
            continue
        changed = [
            f"{name} {visit.versions.get(name, 'missing')} (here {here.get(name, 'missing')})"
            for name in sorted(here.keys() | visit.versions.keys())
            if visit.versions.get(name) != here.get(name)
        ]
        yield f"{visit.name} ran with {', '.join(changed) or 'the same versions as here'}"


def _small_grid(measured: Measured) -> Iterator[str]:
    plan, num_sms = measured.plan, measured.environment.num_sms
    grid = get_family(plan.task.family).grid(case_of(plan.case, plan.contenders[plan.head]))
    if grid is not None and num_sms is not None and 2 * grid < num_sms:
        yield f"a grid of {grid} thread blocks fills less than half of the {num_sms} SMs: expect noise"
