"""Measure every candidate once: compile ahead, check, time, record.

Compile workers run beside the measurements, so that the device waits only when nothing is compiled. Whatever a
candidate does is an outcome in the journal; nothing here decides who wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from attnctl.gpu.interfaces import MeasurerLike, PoolLike
from attnctl.gpu.protocol import Environment, Result
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Journal, OutcomeRecord
from attnctl.tune.progress import Progress
from attnctl.tune.quarantine import DANGEROUS, Entry, Quarantine
from attnctl.tune.space import Space
from attnctl.tune.strategies import Stop, Strategy
from attnctl_kernels.contract import Candidate, Compiled, Outcome, SparseBlock

_FEW = 24  # about 10 s of measuring on an H200: what a process takes to import torch and flash-attn-4
# Outcomes that depend on the device code alone; a hang or a crash is worth a second look.
_OF_THE_BINARY = frozenset({Outcome.OK, Outcome.WRONG_RESULT, Outcome.OUT_OF_RESOURCES, Outcome.LAUNCH_ERROR})


@dataclass
class Costs:
    """What the screening took."""

    wall_s: float = 0.0
    measuring_s: float = 0.0  # the device was in use, or a candidate's fault was being cleared away
    compile_core_s: float = 0.0
    slowest: tuple[float, Candidate] | None = None  # seconds of measuring

    @property
    def busy(self) -> float:
        return self.measuring_s / self.wall_s if self.wall_s else 0.0


@dataclass
class Recorder:
    """Writes outcomes where they belong: the journal, the quarantine, the user's screen."""

    space: Space
    environment: Environment
    journal: Journal
    quarantine: Quarantine | None
    progress: Progress
    interrupts: Interrupts

    def record(self, candidate: Candidate, result: Result, note: str = "") -> None:
        with self.interrupts.shield():
            self.journal.append(OutcomeRecord(candidate=candidate, result=result, note=note))
            if self.quarantine and result.outcome in DANGEROUS:
                self.quarantine.add(self.journal.recorded.header.task, candidate, self.environment, result)
        self.progress.outcome(candidate, result, note)


@dataclass
class Screening:
    """One task's screening. ``out_of_time`` says when to stop asking for more."""

    measurer: MeasurerLike
    pool: PoolLike | None
    recorder: Recorder
    strategy: Strategy
    held: Mapping[str, Entry] = field(default_factory=dict)  # quarantined, by Candidate.key
    out_of_time: Callable[[], bool] = lambda: False
    nearly_done: Callable[[], None] = lambda: None  # called, once or more, when few candidates are left
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        self._task = self.recorder.journal.recorded.header.task
        self._outcomes = self.recorder.journal.recorded.outcomes
        self._space = self.recorder.space
        self._twins: dict[tuple[str | None, SparseBlock | None], OutcomeRecord] = {}
        self._best_us: float | None = None
        self._choose = self.strategy.start(self._space)
        self._pending: dict[str, Candidate] = {}  # given out and without an outcome yet
        self._tried = {key: each.result for key, each in self._outcomes.items() if not _is_skipped(each)}
        self.stopped: Stop | None = None
        for record in self._outcomes.values():
            self._learn(record)

    def begin(self) -> None:
        """Give the compile workers something to do. Optional: ``run`` does it too."""
        if self.pool is not None:
            self._submit(self.pool)

    def run(self) -> bool:
        """Measure; False if time ran out before all that was proposed was measured."""
        started = time.monotonic()
        try:
            return self._alone() if self.pool is None else self._with_pool(self.pool)
        finally:
            self.costs.wall_s += time.monotonic() - started

    def _next(self) -> Candidate | None:
        """Default and incumbent, then what the strategy asks for; what is in quarantine is recorded as such."""
        while (candidate := self._chosen()) is not None:
            entry = self.held.get(candidate.key)
            if entry is None:
                self._pending[candidate.key] = candidate
                return candidate
            why = f"{entry.outcome} earlier with the same versions; --fresh tries it again"
            reason = f"in quarantine ({why}): {entry.reason}"
            self._record(candidate, Result(outcome=Outcome.SKIPPED, reason=reason))
        return None

    def _chosen(self) -> Candidate | None:
        for candidate in self._space.required:
            if candidate.key not in self._tried and candidate.key not in self._pending:
                return candidate
        if isinstance(choice := self._choose(self._tried, self._pending), Stop):
            self.stopped = choice
            return None
        return choice

    def _alone(self) -> bool:
        while (candidate := self._next()) is not None:
            if self._late(candidate):
                return False
            self._measure(candidate, None)
        return True

    def _with_pool(self, pool: PoolLike) -> bool:
        self._submit(pool)
        while self._pending:
            for candidate, compiled in pool.completed(self._task):
                if len(self._pending) <= _FEW:
                    self.nearly_done()
                if self._late(candidate):
                    pool.cancel()
                    return False
                self._after_compiling(candidate, compiled)
                self._submit(pool)
                if self.stopped and not self.stopped.wait:
                    pool.cancel()
                    return True
        return True

    def _submit(self, pool: PoolLike) -> None:
        ahead = self.strategy.lookahead
        room = len(self._space.candidates) if ahead is None else pool.size + ahead
        while len(self._pending) < room and (candidate := self._next()) is not None:
            pool.submit(self._task, candidate)

    def _late(self, candidate: Candidate) -> bool:
        """Default and incumbent are measured whatever the time is."""
        return candidate not in self._space.required and self.out_of_time()

    def _after_compiling(self, candidate: Candidate, result: Result) -> None:
        compiled = result.compiled
        self.costs.compile_core_s += compiled.seconds if compiled else result.seconds.get("compile", 0.0)
        if result.outcome is Outcome.OK:
            self._measure(candidate, compiled)
        else:
            self._record(candidate, result)

    def _measure(self, candidate: Candidate, compiled: Compiled | None) -> None:
        twin = self._twins.get(_identity(candidate, compiled)) if compiled and compiled.binary else None
        if twin is not None:
            result = twin.result.model_copy(update={"compiled": compiled})
            self._record(candidate, result, f"same binary as {self._space.labels[twin.candidate.key]}")
            return
        patient = candidate in self._space.required
        started = time.monotonic()
        result = self.measurer.measure(candidate, None if patient else self._best_us)
        seconds = time.monotonic() - started
        self.costs.measuring_s += seconds
        if self.costs.slowest is None or seconds > self.costs.slowest[0]:
            self.costs.slowest = (seconds, candidate)
        if result.compiled is None and compiled:
            result = result.model_copy(update={"compiled": compiled})
        self._record(candidate, result)
        self._learn(self._outcomes[candidate.key])

    def _record(self, candidate: Candidate, result: Result, note: str = "") -> None:
        self.recorder.record(candidate, result, note)
        self._tried[candidate.key] = result
        self._pending.pop(candidate.key, None)

    def _learn(self, record: OutcomeRecord) -> None:
        """What later candidates gain from this outcome: a time to beat, and a binary that need not run again."""
        result = record.result
        if result.outcome is Outcome.OK and result.timing:
            self._best_us = min(result.timing.median_us, self._best_us or result.timing.median_us)
        if result.outcome in _OF_THE_BINARY and result.compiled and result.compiled.binary:
            self._twins.setdefault(_identity(record.candidate, result.compiled), record)


def _identity(candidate: Candidate, compiled: Compiled) -> tuple[str | None, SparseBlock | None]:
    """The same device code over the same block lists does the same work."""
    return compiled.binary, candidate.sparse_block


def _is_skipped(record: OutcomeRecord) -> bool:
    return record.result.outcome is Outcome.SKIPPED
