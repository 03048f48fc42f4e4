"""Finals: the best of the screening, default and incumbent, interleaved in several fresh processes, then decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from attnctl.errors import AttnctlError
from attnctl.gpu.interfaces import PoolLike
from attnctl.gpu.lane import Lanes
from attnctl.gpu.probe_problems import probe_tasks
from attnctl.gpu.protocol import Contender, Cycle, Result, Timing
from attnctl.profile.candidate import case_of
from attnctl.tune.decide import MAX_DROPPED, Decision, Verdict, decide, good_cycles
from attnctl.tune.journal import FinalsRecord, OutcomeRecord
from attnctl.tune.screening import Recorder
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate, Outcome, Span
from attnctl_kernels.families import get_family

TOP = 8
NEAR = 1.05  # times the best: as good as the best until the finals say otherwise
MAX_FINALISTS = 16
PROCESSES = 3
MAX_PROCESSES = 6  # where three leave something open, and there is no budget
CYCLES = 50
MIN_CYCLES = 15  # where the budget does not allow more
# Candidates whose last check is got ready before it is known whether they win.
_PROBED_EARLY = 3  # while others are still compiled
_PROBED_AHEAD = 6  # then; the third fastest has won, as it tied with the fastest and took fewer resources
_RIVALS = 2  # beside default and incumbent, however short the budget
_CHECK_SAMPLES = 30  # only whether it is right matters
_OVERHEAD = 2.0  # times the kernel: clearing the cache, reading clocks
AGAIN = " again"  # the incumbent's second name


def ranked(outcomes: Sequence[OutcomeRecord]) -> list[OutcomeRecord]:
    """What ran, was right and was not given up, fastest first."""
    fit = [each for each in outcomes if each.result.outcome is Outcome.OK and each.result.timing]
    return sorted((each for each in fit if not _timing(each).gave_up), key=lambda each: _timing(each).median_us)


def baseline(space: Space, ranking: Sequence[OutcomeRecord]) -> Candidate:
    """What the winner is compared with: the incumbent, or if it does not run the default, or else the fastest."""
    running = {each.candidate.key for each in ranking}
    return next(
        (each for each in (space.incumbent, space.default) if each.key in running),
        ranking[0].candidate,
    )


def finalists(space: Space, ranking: Sequence[OutcomeRecord]) -> list[OutcomeRecord]:
    """Default and incumbent, then the fastest."""
    if not ranking:
        return []
    limit = NEAR * _timing(ranking[0]).median_us
    first = [each for each in ranking if each.candidate in space.required]
    near = [
        each
        for place, each in enumerate(ranking)
        if (place < TOP or _timing(each).median_us <= limit) and each not in first
    ]
    return [*first, *near][:MAX_FINALISTS]


@dataclass
class FinalsCosts:
    """Seconds."""

    wall_s: float = 0.0
    last_check_s: float = 0.0  # of them


@dataclass
class Finals:
    """One task's finals. Every process checks every contender on a seed of its own before it times them."""

    lanes: Lanes
    recorder: Recorder
    seconds_left: Callable[[], float | None] = lambda: None  # None: no budget
    startup_s: float = 0.0  # of a measuring process, inputs and reference included
    pool: PoolLike | None = None
    costs: FinalsCosts = field(default_factory=FinalsCosts)
    contenders: list[Contender] = field(default_factory=list)  # the baseline first, and last under another name
    processes: list[tuple[Cycle, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._recorded = self.recorder.journal.recorded
        self._space = self.recorder.space
        self.warnings: tuple[str, ...] = ()  # about the winner
        self.last_check: Span | None = None  # when the winner was checked once more
        self._probes: dict[str, list[Future[Result]]] = {}  # by Candidate.key

    def run(self) -> Decision:
        """Measure until decided; the winner has passed every check that there is.

        Raises:
            NothingWorks: nothing runs and is right.
        """
        started = time.monotonic()
        try:
            return self._run()
        finally:
            self.costs.wall_s += time.monotonic() - started

    def _run(self) -> Decision:
        self.lanes.on_lead(lambda lead: lead.warm_up(PROCESSES))
        self._enter()
        self._compile_ahead([each.candidate for each in self.contenders], _PROBED_AHEAD)
        wanted = PROCESSES
        while True:
            while len(self.processes) < wanted:
                self._process(wanted)
            decision = self.decide()
            if _open(decision) and self._another_is_worth_it(wanted):
                wanted += 1
            elif decision.unstable or self._passes(self.candidate(decision.winner)):
                return decision
            else:
                self._remove({decision.winner})

    def prepare(self) -> None:
        """The screening has compile workers to spare: let them compile what the last check of its best will need."""
        ranking = ranked(list(self._recorded.outcomes.values()))
        if ranking:
            self._compile_ahead([baseline(self._space, ranking), *(each.candidate for each in ranking)], _PROBED_EARLY)

    def recall(self) -> bool:
        """Take contenders and cycles from the journal; False if no finals have been run."""
        ok = {key for key, each in self._recorded.outcomes.items() if each.result.outcome is Outcome.OK}
        for record in self._recorded.finals:
            if record.contenders[0].candidate.key in ok:
                self.contenders = [each for each in record.contenders if each.candidate.key in ok]
        self.processes = self._recorded_processes()
        return bool(self.processes)

    def decide(self) -> Decision:
        """What the processes so far say."""
        baseline, again = self.contenders[0].name, self.contenders[-1].name
        candidates = {each.name: each.candidate for each in self.contenders[:-1]}
        default = next((name for name, each in candidates.items() if each == self._space.default), None)
        return decide(
            [[_only(each, {*candidates, again}) for each in process] for process in self.processes],
            incumbent=baseline,
            default=default,
            aa=(baseline, again),
            resources={name: self._resources(candidate) for name, candidate in candidates.items()},
            default_clock_mhz=self.recorder.environment.clock_default_mhz,
        )

    def candidate(self, name: str) -> Candidate:
        return next(each.candidate for each in self.contenders if each.name == name)

    def _enter(self) -> None:
        """Choose the contenders."""
        ranking = ranked(list(self._recorded.outcomes.values()))
        if not ranking:
            raise NothingWorks
        chosen = finalists(self._space, ranking)
        left = self.seconds_left()
        fewest = len(self._space.required) + _RIVALS
        while left is not None and len(chosen) > fewest and duration_s(chosen, self.startup_s, MIN_CYCLES) > left:
            chosen.pop()
        first = baseline(self._space, ranking)
        ordered = [first, *(each.candidate for each in chosen if each.candidate != first)]
        label = self._space.labels
        self.contenders = [
            *(Contender(name=label[each.key], candidate=each) for each in ordered),
            Contender(name=label[first.key] + AGAIN, candidate=first),
        ]
        self.processes = self._recorded_processes()

    def _recorded_processes(self) -> list[tuple[Cycle, ...]]:
        """Processes of an earlier run with all of these contenders, on a machine that was stable."""
        clock = self.recorder.environment.clock_default_mhz
        return [
            record.cycles
            for record in self._recorded.finals
            if all(each in record.contenders and each.name not in record.failed for each in self.contenders)
            and len(good_cycles([record.cycles], clock)[0]) > (1 - MAX_DROPPED) * len(record.cycles)
        ]

    def _passes(self, winner: Candidate) -> bool:
        """The winner is checked once more, on the probe problems too. If it fails, that is its outcome."""
        started = time.monotonic()
        for each in self._compile_probes(winner):
            with suppress(AttnctlError, CancelledError):  # the measuring process tries it again, and says what is wrong
                each.result()
        result = self.lanes.on_lead(
            lambda lead: lead.measure(winner, max_samples=_CHECK_SAMPLES, second_seed=True, probes=True)
        )
        self.costs.last_check_s += time.monotonic() - started
        self.last_check = result.span
        self.warnings = result.check.warnings if result.check else ()
        if result.outcome is not Outcome.OK:
            self.recorder.record(winner, result, "failed the last check")
        return result.outcome is Outcome.OK

    def _compile_ahead(self, candidates: Sequence[Candidate], count: int) -> None:
        """The baseline comes first, then the fastest: one of these usually wins."""
        for each in list(dict.fromkeys(each.key for each in candidates))[:count]:
            self._compile_probes(next(one for one in candidates if one.key == each))

    def _compile_probes(self, candidate: Candidate) -> list[Future[Result]]:
        """What the last check of ``candidate`` needs, in the compile workers, which have nothing to do by now."""
        if self.pool is None:
            return []
        if candidate.key not in self._probes:
            task = self._recorded.header.task
            probes = probe_tasks(get_family(task.family), task, candidate)
            self._probes[candidate.key] = [self.pool.submit(each, candidate) for each in probes]
        return self._probes[candidate.key]

    def _process(self, wanted: int) -> None:
        """Run one fresh process. Who fails in it is out; if that is the baseline, the finals start again."""
        self.recorder.progress.finals(len(self.processes) + 1, wanted, len(self.contenders) - 1)
        contenders, cycles = tuple(self.contenders), self._cycles()
        reply = self.lanes.on_lead(lambda lead: lead.finals(contenders, cycles))
        record = FinalsRecord(contenders=contenders, cycles=reply.cycles, failed=reply.failed, span=reply.span)
        with self.recorder.interrupts.shield():
            self.recorder.journal.append(record)
        if reply.cycles:
            self.processes.append(reply.cycles)
        failed = {self.candidate(name).key: name for name in reply.failed}  # the baseline has two names
        for name in failed.values():
            self.recorder.record(self.candidate(name), reply.failed[name], "failed in the finals")
        self._remove(set(reply.failed))

    def _remove(self, names: set[str]) -> None:
        """Take contenders out; without a baseline, choose anew among what is left."""
        if names & {self.contenders[0].name, self.contenders[-1].name}:
            self._enter()
        else:
            self.contenders = [each for each in self.contenders if each.name not in names]

    def _resources(self, candidate: Candidate) -> tuple[Any, ...]:
        """What breaks a tie: less of each resource, then smaller values in field order."""
        case = case_of(self._space.case, candidate)
        used = tuple(each.used for each in get_family(case.family).resources(case))
        return used, tuple(candidate.config.values()), candidate.sparse_block or ()

    def _cycle_s(self) -> float:
        """One sample of each contender, with what clears the cache between them."""
        outcomes = self._recorded.outcomes
        medians = [_timing(outcomes[each.candidate.key]).median_us for each in self.contenders]
        return _OVERHEAD * 1e-6 * sum(medians)

    def _cycles(self) -> int:
        left = self.seconds_left()
        if left is None:
            return CYCLES
        processes = max(1, PROCESSES - len(self.processes))
        return max(MIN_CYCLES, min(CYCLES, int(left / processes / max(self._cycle_s(), 1e-9))))

    def _another_is_worth_it(self, run: int) -> bool:
        """With a budget as long as there is time, without one a few times."""
        left = self.seconds_left()
        return run < MAX_PROCESSES if left is None else left > self.startup_s + self._cycle_s() * CYCLES


class NothingWorks(Exception):
    """No candidate runs and is right."""


def _open(decision: Decision) -> bool:
    """Could more cycles still find something better than the incumbent?"""
    compared = decision.vs_incumbent.values()
    if decision.unstable or any(each.verdict is Verdict.BETTER for each in compared):
        return False
    return any(each.verdict is Verdict.INCONCLUSIVE and each.low < 1 - each.margin for each in compared)


def _only(cycle: Cycle, names: set[str]) -> Cycle:
    return cycle.model_copy(update={"samples_us": {name: us for name, us in cycle.samples_us.items() if name in names}})


def _timing(record: OutcomeRecord) -> Timing:
    assert record.result.timing is not None
    return record.result.timing


def duration_s(finalists: Sequence[OutcomeRecord], startup_s: float, cycles: int = CYCLES) -> float:
    """What finals take: processes to start, contenders to check, cycles to run."""
    checks = sum(
        each.result.seconds.get(phase, 0.0) for each in finalists for phase in ("compile", "first_call", "check")
    )
    cycle = _OVERHEAD * 1e-6 * sum(_timing(each).median_us for each in finalists)
    return PROCESSES * (startup_s + checks + cycles * cycle)
