"""Tune one task: screening, finals, decision, and the winner on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attnctl.errors import AttnctlError, Unavailable
from attnctl.gpu.interfaces import PoolLike
from attnctl.gpu.lane import Lanes
from attnctl.gpu.protocol import Prepared
from attnctl.profile.candidate import case_of, errors
from attnctl.profile.load import Loaded
from attnctl.profile.lookup import Hit, Miss, Stale, lookup
from attnctl.profile.tuned import entry_key, store, tuned_path
from attnctl.tune.budget import Share
from attnctl.tune.decide import Decision
from attnctl.tune.entry import entry_of
from attnctl.tune.finals import PROCESSES, Finals, NothingWorks, duration_s, finalists, ranked
from attnctl.tune.interrupt import Interrupted, Interrupts
from attnctl.tune.journal import DoneRecord, Journal, PreparedRecord, Recorded
from attnctl.tune.outcome import Status, TaskResult
from attnctl.tune.progress import Progress
from attnctl.tune.quarantine import Entry as Quarantined
from attnctl.tune.quarantine import Quarantine
from attnctl.tune.screening import Recorder, Screening
from attnctl.tune.strategies import Strategy
from attnctl_kernels.contract import Outcome

_QUICK_PROCESSES = 2  # fewer cannot show whether a difference survives a new process
_LARGEST_SHARE = 0.5  # of the device's memory, for the inputs of all processes: kernels need some too


@dataclass
class Sweep:
    """One task on one device. ``result`` is filled in as it goes, and stands whatever happens."""

    result: TaskResult
    lanes: Lanes
    pool: PoolLike | None
    journal: Journal
    quarantine: Quarantine | None
    strategy: Strategy
    progress: Progress
    interrupts: Interrupts
    held: Mapping[str, Quarantined] = field(default_factory=dict)
    share: Share = field(default_factory=lambda: Share(0.0, None))
    startup_s: float = 0.0  # of a measuring process, for what finals will take

    def run(self) -> None:
        """Measure and decide.

        Raises:
            Interrupted: what is known by then is in ``result``.
        """
        result = self.result
        recorder = Recorder(
            result.space, result.environment, self.journal, self.quarantine, self.progress, self.interrupts
        )
        finals = Finals(self.lanes, recorder, self.share.left, pool=self.pool, costs=result.finals_costs)
        try:
            self._screen(recorder, finals)
            finals.startup_s = self.startup_s
            self._conclude(finals, finals.run())
        except NothingWorks:
            result.status = Status.NO_CONFIG
        except Interrupted:
            self._conclude_early(finals)
            raise
        finally:
            result.outcomes = tuple(self.journal.recorded.outcomes.values())
            self.progress.end()

    def recall(self) -> bool:
        """Take the decision from a journal whose sweep is done; False if it is not there."""
        recorder = Recorder(
            self.result.space, self.result.environment, self.journal, None, self.progress, self.interrupts
        )
        finals = Finals(self.lanes, recorder)
        self.result.prepared = self.journal.recorded.prepared
        self.result.outcomes = tuple(self.journal.recorded.outcomes.values())
        if not finals.recall():
            return False
        self._conclude(finals, finals.decide())
        return True

    def _screen(self, recorder: Recorder, finals: Finals) -> None:
        result, recorded = self.result, self.journal.recorded
        known = sum(each.result.outcome is not Outcome.SKIPPED for each in recorded.outcomes.values())

        def finals_take() -> float:
            return duration_s(finalists(result.space, ranked(list(recorded.outcomes.values()))), self.startup_s)

        screening = Screening(
            self.lanes,
            self.pool,
            recorder,
            self.strategy,
            self.held,
            out_of_time=lambda: self.share.screening_is_over(finals_take),
            when_compilers_idle=finals.prepare,
            costs=result.costs,
        )
        screening.begin()
        prepared = result.prepared = self._prepare(recorded)
        result.startup_s = self.startup_s
        self.progress.start(result.space, prepared, known, self.strategy.most(len(result.space.candidates)))
        result.measured_all = screening.run()
        result.stopped = screening.stopped

    def _prepare(self, recorded: Recorded) -> Prepared:
        """Inputs and references on every device; where compilers are busy meanwhile, in the finals' processes too."""
        task, cache = recorded.header.task, recorded.header.cache
        if self.pool is not None:
            self.lanes.on_lead(lambda lead: lead.warm_up(PROCESSES))
        others = [(each, each.do(lambda measurer: measurer.prepare(task, cache))) for each in self.lanes.all[1:]]
        prepared: Prepared | None = None
        try:
            prepared = self.lanes.lead.prepare(task, cache)
        except Unavailable as error:
            self.lanes.drop(self.lanes.all[0], error)
        for lane, preparing in others:
            try:
                preparing.result()
            except Unavailable as error:
                self.lanes.drop(lane, error)
        if prepared is None:  # the next device leads; nothing else is using it by now
            prepared = self.lanes.on_lead(lambda lead: lead.prepare(task, cache))
        self.startup_s += prepared.seconds
        if recorded.prepared is None:
            self.journal.append(PreparedRecord(prepared=prepared))
        memory = self.lanes.lead.environment.memory_bytes or 0
        fits = prepared.device_bytes * (PROCESSES + 1) <= _LARGEST_SHARE * memory
        if self.pool is not None and fits:
            self.lanes.on_lead(lambda lead: lead.prepare_finals(PROCESSES))
        return prepared

    def _conclude(self, finals: Finals, decision: Decision) -> None:
        result = self.result
        result.decision = decision
        result.names = {each.name: each.candidate for each in finals.contenders[:-1]}
        result.baseline = finals.contenders[0].name
        result.processes = len(finals.processes)
        if decision.unstable:
            result.status = Status.UNSTABLE
            return
        winner = finals.candidate(decision.winner)
        broken = errors(case_of(result.space.case, winner))
        if broken:
            rule, violation = broken[0]
            raise AttnctlError(f"the winner ({winner}) breaks {rule.code}: {violation.message}", "report this as a bug")
        result.winner, result.warnings = winner, finals.warnings
        if decision.winner != result.baseline:
            result.status = Status.WON
        else:
            result.status = Status.TIE if decision.tie else Status.KEPT
        with self.interrupts.shield():
            self.journal.append(
                DoneRecord(
                    complete=result.measured_all,
                    winner=winner,
                    reason=decision.reason,
                    last_check=finals.last_check,
                )
            )

    def _conclude_early(self, finals: Finals) -> None:
        """An interrupted sweep is decided if the finals were under way, and their winner has been checked in full."""
        probed = not self.lanes.lead.compiles  # the screening has run the probe problems too
        if probed and len(finals.processes) >= _QUICK_PROCESSES:
            decision = finals.decide()
            if not decision.unstable:
                self._conclude(finals, decision)


def write(result: TaskResult, loaded: Loaded, root: Path | None, how_to_resume: Callable[[], str]) -> None:
    """Put the winner into the tuned profile, and find it again as a program would.

    Raises:
        AttnctlError: the file cannot be written, or does not give back what was written.
    """
    assert loaded.profile is not None
    environment = result.environment
    path = tuned_path(loaded.path, environment.device_name, root)
    key = entry_key(result.task, loaded.profile.sparse_block_of(result.task.pass_name))
    found = _find(result, loaded, root)
    if isinstance(found, Hit) and found.candidate == result.winner and result.against_baseline is None:
        result.written, result.unchanged = path, True
        return
    try:
        store(path, environment.device_name, [entry_of(result, key)])
    except AttnctlError as error:
        hint = f"{error.hint}; nothing is lost: {how_to_resume()}"
        raise AttnctlError(error.message, hint) from error
    found = _find(result, loaded, root)
    if not isinstance(found, Hit) or found.candidate != result.winner:
        reason = "another config is found" if isinstance(found, Hit) else found.reason
        raise AttnctlError(f"{path}: what was written is not found again: {reason}", "report this as a bug")
    result.written = path


def _find(result: TaskResult, loaded: Loaded, root: Path | None) -> Hit | Miss | Stale:
    environment = result.environment
    return lookup(
        loaded,
        result.task,
        environment.device_name,
        root=root,
        versions=environment.running_versions,
        num_sms=environment.num_sms,
    )
