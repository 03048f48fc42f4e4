"""Small problems that bring out what the task's own mask may never ask of a candidate.

A dense problem with a tail, on strongly negative scores too; the same without a tail where the family allows none; and
block lists with a row that sees nothing, rows that see some, and a column that nobody sees, whose keys are NaN. They
use the candidate's own config, so a compiled family would have to compile it once per probe: there they run on request.
"""

from __future__ import annotations

from typing import NamedTuple

from attnctl.worker.check import Checker
from attnctl.worker.compare import WrongResult
from attnctl.worker.devices import Device
from attnctl.worker.setup import Setup
from attnctl_kernels.contract import Candidate, Case, Family, Launcher, Mask, Problem, SparseBlock, Task
from attnctl_kernels.rule import Severity
from attnctl_kernels.rule import check as violations

_TILE: SparseBlock = (128, 128)  # where a config has no sparse block
_TAIL = 37


class Probe(NamedTuple):
    name: str
    problem: Problem


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
        problem, tile = self._task.problem, sparse_block or _TILE
        notes = [self._run(tail_probe(problem, tile), candidate, sparse_block)]
        if notes[0]:
            notes.append(self._run(full_probe(problem, tile), candidate, sparse_block))
        notes.append(self._run(lists_probe(problem, tile), candidate, sparse_block))
        return tuple(note for note in notes if note)

    def _run(self, probe: Probe, candidate: Candidate, sparse_block: SparseBlock | None) -> str:
        """Why the probe did not run; empty if it did, and passed."""
        refusal = self._refusal(probe.problem, candidate, sparse_block)
        if not refusal:
            setup = self._setup(probe.problem)
            try:
                checker = Checker(setup, setup.bind(self._launcher, candidate))
            except Exception as error:  # noqa: BLE001 - the config is for the task; what no rule knows is no fault here
                refusal = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if refusal:
            return f"probe {probe.name} not run: {refusal}"
        try:
            checker.first_run()
            checker.check_first_run()
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

    def _refusal(self, problem: Problem, candidate: Candidate, sparse_block: SparseBlock | None) -> str:
        """The first rule of the family that the probe breaks; empty if the candidate can run it."""
        task = self._task
        case = Case(
            family=task.family,
            version=task.version or self._family.versions[-1],
            arch=task.arch,
            problem=problem,
            pass_name=task.pass_name,
            config=candidate.config,
            sparse_block=sparse_block,
            given=frozenset(candidate.config),
            passes=(task.pass_name,),
            configs={task.pass_name: candidate.config},
            sparse_blocks={task.pass_name: sparse_block},
        )
        for rule, violation in violations(case, self._family.rules()):
            if rule.severity is Severity.ERROR:
                return f"{rule.code} {violation.message}"
        return ""


def tail_probe(problem: Problem, tile: SparseBlock) -> Probe:
    return Probe("tail", _small(problem, 2 * tile[0] - _TAIL, 2 * tile[1] - _TAIL, Mask()))


def full_probe(problem: Problem, tile: SparseBlock) -> Probe:
    return Probe("full mask", _small(problem, 2 * tile[0], 2 * tile[1], Mask()))


def lists_probe(problem: Problem, tile: SparseBlock) -> Probe:
    """Row 0 sees nothing, row 1 one block, row 2 all that anybody sees; nobody sees column 1."""
    mask = Mask(pattern="blocks", block_size=tile, rows=((), (0,), (0, 2)))
    return Probe("block lists", _small(problem, 3 * tile[0], 3 * tile[1], mask))


def _small(problem: Problem, seqlen_q: int, seqlen_k: int, mask: Mask) -> Problem:
    """One key head and its query heads."""
    return problem.model_copy(
        update={
            "batch_size": 1,
            "seqlen_q": max(seqlen_q, 1),
            "seqlen_k": max(seqlen_k, 1),
            "num_heads_q": problem.num_heads_q // problem.num_heads_kv,
            "num_heads_kv": 1,
            "mask": mask,
        }
    )
