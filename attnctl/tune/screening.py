"""Measure every candidate once: compile ahead, check, time, record.

Compile workers run beside the measurements, so that the device waits only when nothing is compiled. Whatever a
candidate does is an outcome in the journal; nothing here decides who wins.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

from attnctl.errors import Unavailable
from attnctl.gpu.interfaces import PoolLike
from attnctl.gpu.lane import Lane, Lanes
from attnctl.gpu.protocol import Environment, Result
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Journal, OutcomeRecord
from attnctl.tune.progress import Progress
from attnctl.tune.quarantine import DANGEROUS, Entry, Quarantine
from attnctl.tune.space import Space
from attnctl.tune.strategies import Stop, Strategy
from attnctl_kernels.contract import Candidate, Compiled, Outcome, SparseBlock

# Outcomes that depend on the device code alone; a hang or a crash is worth a second look.
_OF_THE_BINARY = frozenset({Outcome.OK, Outcome.WRONG_RESULT, Outcome.OUT_OF_RESOURCES, Outcome.LAUNCH_ERROR})


@dataclass
class Costs:
    """What the screening took."""

    wall_s: float = 0.0
    measuring_s: float = 0.0  # the device was in use, or a candidate's fault was being cleared away
    compile_core_s: float = 0.0
    devices: int = 1
    slowest: tuple[float, Candidate] | None = None  # seconds of measuring

    def add(self, seconds: float, candidate: Candidate) -> None:
        self.measuring_s += seconds
        if self.slowest is None or seconds > self.slowest[0]:
            self.slowest = (seconds, candidate)

    @property
    def busy(self) -> float:
        """The share of the screening in which a device was in use, averaged over the devices."""
        return self.measuring_s / (self.wall_s * self.devices) if self.wall_s else 0.0


@dataclass
class Recorder:
    """Writes outcomes where they belong: the journal, the quarantine, the user's screen."""

    space: Space
    environment: Environment
    journal: Journal
    quarantine: Quarantine | None
    progress: Progress
    interrupts: Interrupts

    def record(self, candidate: Candidate, result: Result, note: str = "", device: str = "") -> None:
        with self.interrupts.shield():
            self.journal.append(OutcomeRecord(candidate=candidate, result=result, note=note, device=device))
            if self.quarantine and result.outcome in DANGEROUS:
                self.quarantine.add(self.journal.recorded.header.task, candidate, self.environment, result)
        self.progress.outcome(candidate, result, note)


@dataclass
class Screening:
    """One task's screening. ``out_of_time`` says when to stop asking for more."""

    lanes: Lanes
    pool: PoolLike | None
    recorder: Recorder
    strategy: Strategy
    held: Mapping[str, Entry] = field(default_factory=dict)  # quarantined, by Candidate.key
    out_of_time: Callable[[], bool] = lambda: False
    when_compilers_idle: Callable[[], None] = lambda: None  # called once, when no more will be compiled
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        self._task = self.recorder.journal.recorded.header.task
        self._outcomes = self.recorder.journal.recorded.outcomes
        self._space = self.recorder.space
        self._twins: dict[tuple[str | None, SparseBlock | None], OutcomeRecord] = {}
        self._best_us: float | None = None
        self._choose = self.strategy.start(self._space)
        self._tried = {key: each.result for key, each in self._outcomes.items() if self._is_known(each)}
        self._pending: dict[str, Candidate] = {}  # given out and without an outcome yet
        self._compiling = 0
        self._compilers_are_idle = False
        self._ready: deque[tuple[Candidate, Compiled | None]] = deque()
        self._idle = list(self.lanes.all)
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what happened on other threads
        self.stopped: Stop | None = None
        self.costs.devices = len(self.lanes.all)
        for record in self._outcomes.values():
            self._learn(record)

    def begin(self) -> None:
        """Give the compile workers something to do. Optional: ``run`` does it too."""
        if self.pool is not None:
            self._submit(self.pool)

    def wants_more(self) -> bool:
        """Whether there is anything left to try."""
        return any(not self._is_given(each) for each in self._space.required) or not isinstance(
            self._choose(self._tried, self._pending), Stop
        )

    def run(self) -> bool:
        """Measure; False if time ran out before all that was proposed was measured."""
        started = time.monotonic()
        try:
            return self._run()
        finally:
            self.costs.wall_s += time.monotonic() - started

    def _run(self) -> bool:
        """Events one by one. Once it is ``over``, only default and incumbent are still waited for."""
        late = over = False
        while True:
            if not over and self.pool is not None:
                self._submit(self.pool)
            late = late or not self._start_measuring(over)
            over = over or late or (self.stopped is not None and not self.stopped.wait)
            due = any(each.key in self._pending for each in self._space.required)
            if over and not due:
                self._abandon()
            self._lend_compilers(over)
            if len(self._idle) == len(self.lanes.all) and not self._compiling:
                return not late
            self._events.get()()

    def _start_measuring(self, over: bool) -> bool:
        """Something for every idle device; False if there was something, and no time for it."""
        while self._idle:
            if self.pool is None and not over and not self._ready and (candidate := self._next()) is not None:
                self._ready.append((candidate, None))
            first = (each for each in self._ready if each[0] in self._space.required)
            chosen = next(first, None)  # those are measured whatever the time
            if chosen is None and self._ready and not over:
                if self.out_of_time():
                    return False
                chosen = self._ready[0]
            if chosen is None:
                break
            self._ready.remove(chosen)
            self._measure(*chosen)
        return True

    def _abandon(self) -> None:
        """Leave what is compiling, and what is compiled and not measured."""
        if self.pool is not None and self._compiling:
            self.pool.cancel()
        self._compiling = 0
        self._ready.clear()

    def _lend_compilers(self, over: bool) -> None:
        """As soon as there are more of them than candidates to compile."""
        if self.pool is None or self._compilers_are_idle or not (over or self.stopped):
            return
        if self._compiling < self.pool.size:
            self._compilers_are_idle = True
            self.when_compilers_idle()

    def _is_known(self, record: OutcomeRecord) -> bool:
        """Default and incumbent need a time that finals can use: a sweep that went before may not have known them."""
        return not _is_skipped(record) and not (record.candidate in self._space.required and _gave_up(record))

    def _is_given(self, candidate: Candidate) -> bool:
        return candidate.key in self._tried or candidate.key in self._pending

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
            if not self._is_given(candidate):
                return candidate
        choice = self._choose(self._tried, self._pending)
        self.stopped = choice if isinstance(choice, Stop) else None
        return None if isinstance(choice, Stop) else choice

    def _submit(self, pool: PoolLike) -> None:
        ahead = self.strategy.lookahead
        room = len(self._space.candidates) if ahead is None else pool.size + ahead
        while len(self._pending) < room and (candidate := self._next()) is not None:
            self._compiling += 1
            pool.submit(self._task, candidate).add_done_callback(partial(self._post, self._compiled, candidate))

    def _post(self, handle: Callable[..., None], candidate: Candidate, future: Future[Result]) -> None:
        """On whatever thread the future ends: leave the rest to the thread that runs the screening."""
        if not future.cancelled():
            self._events.put(partial(handle, candidate, future))

    def _compiled(self, candidate: Candidate, future: Future[Result]) -> None:
        if not self._compiling:  # the pool was cancelled meanwhile
            return
        self._compiling -= 1
        result = future.result()
        compiled = result.compiled
        self.costs.compile_core_s += compiled.seconds if compiled else result.seconds.get("compile", 0.0)
        if result.outcome is Outcome.OK:
            self._ready.append((candidate, compiled))
        else:
            self._record(candidate, result)

    def _measure(self, candidate: Candidate, compiled: Compiled | None) -> None:
        required = candidate in self._space.required
        twin = self._twins.get(_identity(candidate, compiled)) if compiled and compiled.binary else None
        if twin is not None and not (required and _gave_up(twin)):
            result = twin.result.model_copy(update={"compiled": compiled})
            self._record(candidate, result, f"same binary as {self._space.labels[twin.candidate.key]}")
            return
        best_us = None if required else self._best_us
        lane = self._idle.pop(0)
        measuring = lane.do(lambda measurer: measurer.measure(candidate, best_us))
        handle = partial(self._measured, lane, compiled, time.monotonic())
        measuring.add_done_callback(partial(self._post, handle, candidate))

    def _measured(
        self, lane: Lane, compiled: Compiled | None, started: float, candidate: Candidate, future: Future[Result]
    ) -> None:
        seconds = time.monotonic() - started
        self.costs.add(seconds, candidate)
        try:
            result = future.result()
        except Unavailable as error:  # one device fewer; what it was busy with goes to another
            self.lanes.drop(lane, error)
            self.recorder.progress.say(f"going on with {len(self.lanes.all)} devices: {error.message}")
            self._ready.appendleft((candidate, compiled))
            return
        self._idle.append(lane)
        if result.compiled is None and compiled:
            result = result.model_copy(update={"compiled": compiled})
        several = self.costs.devices > 1
        self._record(candidate, result, device=lane.measurer.environment.device if several else "")
        self._learn(self._outcomes[candidate.key])

    def _record(self, candidate: Candidate, result: Result, note: str = "", device: str = "") -> None:
        self.recorder.record(candidate, result, note, device)
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


def _gave_up(record: OutcomeRecord) -> bool:
    return record.result.timing is not None and record.result.timing.gave_up
