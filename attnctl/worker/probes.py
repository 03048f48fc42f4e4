"""Small problems that bring out what the task's own mask may never ask of a candidate.

A dense problem of whole tiles; a dense one with a tail; and block lists with a row that sees nothing, rows that see one
block, and a column that nobody sees, whose keys are NaN. They use the candidate's own config, so a compiled family
would have to compile it once per probe: there they run on request only.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.worker.check import Checker
from attnctl.worker.compare import WrongResult
from attnctl.worker.devices import Device
from attnctl.worker.setup import Setup
from attnctl_kernels.contract import Candidate, Case, Family, Launcher, Mask, Problem, SparseBlock, Task
from attnctl_kernels.rule import Severity
from attnctl_kernels.rule import check as violations

_TILE: SparseBlock = (128, 128)  # where a config has no sparse block
_TAIL = 37
_ROWS_OF_BLOCKS = 4
_HEADS_KV = 2


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
        return tuple(
            note
            for name, problem in problems(self._task.problem, sparse_block or _TILE)
            if (note := self._probe(name, problem, candidate, sparse_block))
        )

    def _probe(self, name: str, problem: Problem, candidate: Candidate, sparse_block: SparseBlock | None) -> str:
        if refusal := self._refusal(problem, candidate, sparse_block):
            return f"probe {name} not run: {refusal}"
        setup = self._setups.get(problem)
        if setup is None:
            task = self._task.model_copy(update={"problem": problem})
            setup = self._setups[problem] = Setup(task, self._device)
        checker = Checker(setup, setup.bind(self._launcher, candidate))
        checker.first_run()
        try:
            checker.check(sparse_block)
        except WrongResult as error:
            raise WrongResult(f"probe {name} ({problem.slug}): {error}") from None
        return ""

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


def problems(problem: Problem, tile: SparseBlock) -> Iterator[tuple[str, Problem]]:
    """The probes for ``problem``, in tiles of ``tile``."""
    heads_kv = min(problem.num_heads_kv, _HEADS_KV)
    small = {
        "batch_size": 1,
        "num_heads_kv": heads_kv,
        "num_heads_q": heads_kv * (problem.num_heads_q // problem.num_heads_kv),
    }

    def make(seqlen_q: int, seqlen_k: int, mask: Mask) -> Problem:
        return problem.model_copy(update=small | {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "mask": mask})

    q, k = tile
    yield "full mask", make(2 * q, 2 * k, Mask())
    yield "tail", make(max(2 * q - _TAIL, 1), max(2 * k - _TAIL, 1), Mask())
    # Row 0 sees nothing, rows 1 and 2 one block each, row 3 all that anybody sees; nobody sees column 1.
    rows = ((), (0,), (3,), (0, 2, 3))
    mask = Mask(pattern="blocks", block_size=tile, rows=rows)
    yield "block lists", make(_ROWS_OF_BLOCKS * q, _ROWS_OF_BLOCKS * k, mask)
