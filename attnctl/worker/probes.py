"""Runs candidates on small problems that bring out what the task's own mask may never ask of them.

They use the candidate's own config, so a compiled family has to compile it once per probe: there they run on request.
"""

from __future__ import annotations

from attnctl.gpu.probe_problems import DEFAULT_TILE, Probe, full_probe, lists_probe, refused, tail_probe
from attnctl.worker import failures
from attnctl.worker.check import Checker
from attnctl.worker.compare import WrongResult
from attnctl.worker.devices import Device
from attnctl.worker.setup import Setup
from attnctl_kernels.contract import Candidate, Family, Launcher, Problem, SparseBlock, Task


class Probes:
    """Runs candidates on the probes of one task; inputs and references are kept between candidates."""

    def __init__(self, family: Family, launcher: Launcher, task: Task, device: Device) -> None:
        self._family = family
        self._launcher = launcher
        self._task = task
        self._device = device
        self._setups: dict[Problem, Setup] = {}

    def run(self, candidate: Candidate, sparse_block: SparseBlock | None) -> tuple[str, ...]:
        """One note per probe that could not run.

        Raises:
            WrongResult: naming the probe.
        """
        problem, tile = self._task.problem, sparse_block or DEFAULT_TILE
        notes = [self._run(tail_probe(problem, tile), candidate, sparse_block)]
        if notes[0]:
            notes.append(self._run(full_probe(problem, tile), candidate, sparse_block))
        notes.append(self._run(lists_probe(problem, tile), candidate, sparse_block))
        return tuple(note for note in notes if note)

    def _run(self, probe: Probe, candidate: Candidate, sparse_block: SparseBlock | None) -> str:
        """Why the probe did not run; empty if it did, and passed."""
        refusal = refused(self._family, self._task, probe.problem, candidate, sparse_block)
        if not refusal:
            setup = self._setup(probe.problem)
            try:
                checker = Checker(setup, setup.bind(self._launcher, candidate))
            except Exception as error:  # noqa: BLE001 - the config is for the task; what no rule knows is no fault here
                failures.require_candidates_own(error)
                refusal = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if refusal:
            return f"probe {probe.name} not run: {refusal}"
        try:
            checker.first_run()
            checker.check_latest_run()
            checker.check_on(setup.negative)
            checker.check_blindness(sparse_block)
        except WrongResult as error:
            raise WrongResult(f"probe {probe.name} ({probe.problem.slug}): {error}") from None
        return ""

    def _setup(self, problem: Problem) -> Setup:
        if problem not in self._setups:
            task = self._task.model_copy(update={"problem": problem})
            self._setups[problem] = Setup(task, self._device)
        return self._setups[problem]
