"""Small problems that bring out what the task's own mask may never ask of a candidate.

A dense problem with a tail, on strongly negative scores too; the same without a tail where the family allows none; and
block lists with a row that sees nothing, rows that see some, and a column that nobody sees, whose keys are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attnctl_kernels.contract import Candidate, Case, Family, Mask, Problem, SparseBlock, Task
from attnctl_kernels.rule import Severity
from attnctl_kernels.rule import check as violations

DEFAULT_TILE: SparseBlock = (128, 128)  # where a config has no sparse block
SPARSE = 0.25  # of all pairs: a kernel that skips the rest must be faster than one that does not
_TAIL = 37


class Probe(NamedTuple):
    name: str
    problem: Problem


def probe_tasks(family: Family, task: Task, candidate: Candidate) -> Iterator[Task]:
    """The probes that ``candidate`` will run as far as the rules can tell, for compiling them ahead."""
    block = candidate.sparse_block or family.sparse_block(task.problem, task.pass_name, candidate.config)
    tile = block or DEFAULT_TILE
    choices = ((tail_probe, full_probe), (lists_probe,))
    for makers in choices:
        problems = (make(task.problem, tile).problem for make in makers)
        allowed = (each for each in problems if not refused(family, task, each, candidate, block))
        if problem := next(allowed, None):
            yield task.model_copy(update={"problem": problem})
    dense = dense_task(task)
    if dense and not refused(family, task, dense.problem, candidate, block):
        yield dense


def dense_task(task: Task) -> Task | None:
    """The task without its mask, where that should take much longer; None where the mask shows too much."""
    from attnctl_kernels import masks  # noqa: PLC0415 - brings numpy

    problem = task.problem
    if masks.density(problem.mask, problem.seqlen_q, problem.seqlen_k) > SPARSE:
        return None
    return task.model_copy(update={"problem": problem.model_copy(update={"mask": Mask()})})


def refused(
    family: Family, task: Task, problem: Problem, candidate: Candidate, sparse_block: SparseBlock | None
) -> str:
    """The first rule of the family that a probe breaks; empty if the candidate can run it."""
    case = Case(
        family=task.family,
        version=task.version or family.versions[-1],
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
    for rule, violation in violations(case, family.rules()):
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
