"""From a journal back to everything that its sweep found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from attnctl.errors import UsageError
from attnctl.gpu.lane import Lanes
from attnctl.gpu.replay import ReplayMeasurer
from attnctl.profile.candidate import case_of
from attnctl.profile.load import Loaded
from attnctl.profile.lookup import case_for
from attnctl.profile.problems import tasks
from attnctl.report._mask.blocks import block_size, blocks_of
from attnctl.report._mask.coverage import Coverage, coverage
from attnctl.tune.finals import ranked
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Header, Journal, Recorded, read
from attnctl.tune.outcome import Status, TaskResult
from attnctl.tune.progress import Progress
from attnctl.tune.space import Space, build
from attnctl.tune.strategies import get_strategy
from attnctl.tune.sweep import Sweep
from attnctl_kernels.contract import Candidate, Case, SparseBlock, Task
from attnctl_kernels.families import get_family

_MOST_BLOCKS = 1 << 18  # of one block size: a report looks at every size that was tried


@dataclass(frozen=True, eq=False)
class Recalled:
    """One sweep. ``whole``: its space could be built again, so that the drops are known and candidates have labels."""

    path: Path
    recorded: Recorded
    result: TaskResult
    whole: bool
    profile: Loaded | None  # the one that was swept, where it is at hand

    @property
    def header(self) -> Header:
        return self.recorded.header

    @property
    def case(self) -> Case:
        return self.result.space.case

    def label(self, candidate: Candidate) -> str:
        """Its name in the finals, or else in the space."""
        named = (name for name, each in self.result.names.items() if each == candidate)
        return next(named, self.result.space.labels.get(candidate.key, "") if self.whole else "")

    @cache  # noqa: B019 - lives as long as the report
    def coverage(self, block: SparseBlock) -> Coverage | None:
        """Of the mask at one block size; None where there are too many blocks to look at every size."""
        problem = self.case.problem
        count = -(-problem.seqlen_q // block[0]) * -(-problem.seqlen_k // block[1])
        return coverage(blocks_of(self.case, block)) if count <= _MOST_BLOCKS else None

    def coverage_of(self, candidate: Candidate) -> Coverage | None:
        return self.coverage(block_size(case_of(self.case, candidate)))


def recall(path: Path, profiles: Sequence[Loaded] = ()) -> Recalled:
    """Decide again from what a journal holds. One of ``profiles`` may be the one that was swept.

    Raises:
        AttnctlError: it cannot be read, or is of a family that is not installed.
    """
    recorded = read(path)
    task = recorded.header.task
    profile = _profile_of(recorded.header, profiles)
    space = next((each for each in _spaces(recorded, profile) if each.fingerprint == recorded.header.space), None)
    whole = space is not None
    space = space or _space_of_what_was_tried(recorded)
    outcomes = tuple(recorded.outcomes.values())
    result = TaskResult(task, space, recorded.header.environment, journal=path)
    complete = recorded.done.complete if recorded.done else len(outcomes) >= len(space.candidates)
    journal = Journal.scratch(recorded.header)
    journal.recorded = replace(recorded)  # the sweep that decides again marks its journal as done
    try:
        with Lanes.of(ReplayMeasurer([recorded])) as lanes:
            decided = Sweep(
                result=result,
                lanes=lanes,
                pool=None,
                journal=journal,
                quarantine=None,
                strategy=get_strategy("exhaustive"),
                progress=Progress(),
                interrupts=Interrupts(),
            ).recall()
    finally:
        journal.close()
    result.measured_all = complete
    if not decided and complete and not ranked(list(outcomes)):
        result.status = Status.NO_CONFIG
    return Recalled(path, recorded, result, whole, profile)


def _profile_of(header: Header, profiles: Sequence[Loaded]) -> Loaded | None:
    """The profile that ``header`` is about: of its name, with its task."""
    for each in profiles:
        if each.profile and each.path.stem == header.profile and header.task in tasks(each.profile):
            return each
    return None


def _spaces(recorded: Recorded, loaded: Loaded | None) -> Iterator[Space]:
    """What may have been swept: as the profile says, or the family's own space, with and without a fixed block."""
    task, incumbent = recorded.header.task, _incumbent(recorded)
    if loaded is not None and loaded.profile is not None:
        fixed = loaded.profile.sparse_block_of(task.pass_name)
        yield build(case_for(loaded, task), sparse_block=fixed, search=loaded.profile.search, incumbent=incumbent)
        return
    cases = [(fixed, _case_of(task, fixed)) for fixed in (None, *_only_block(recorded))]
    for search in ({}, _without_later_parameters(recorded)):
        for fixed, case in cases:
            yield build(case, sparse_block=fixed, search=search, incumbent=incumbent)


def _without_later_parameters(recorded: Recorded) -> dict[str, Any]:
    """A search in which what no recorded candidate names has its first value: the family did not have it then."""
    task = recorded.header.task
    family = get_family(task.family)
    named = {name for each in recorded.outcomes.values() for name in each.candidate.config}
    space = family.space(task.problem, task.pass_name, task.arch)
    later = {name: values[:1] for name, values in space.items() if name not in named and name != "sparse_block"}
    return later if family.flat_config else {task.pass_name: later}


def _space_of_what_was_tried(recorded: Recorded) -> Space:
    """Where the space cannot be built again, what is in the journal stands for it."""
    case = _case_of(recorded.header.task, None)
    candidates = tuple(each.candidate for each in recorded.outcomes.values())
    default = Candidate(config=dict(case.config), sparse_block=case.sparse_block)
    return Space(case, candidates, (), default, _incumbent(recorded) or default)


def _incumbent(recorded: Recorded) -> Candidate | None:
    """Who was in use at the time, where the finals say so; None: the kernel's default, or nobody knows."""
    contenders = (each for finals in recorded.finals for each in finals.contenders)
    return next((each.candidate for each in contenders if each.name == "incumbent"), None)


def _only_block(recorded: Recorded) -> set[SparseBlock]:
    """The sparse block, where all candidates ran at one."""
    found = {each.candidate.sparse_block for each in recorded.outcomes.values()}
    return {each for each in found if each} if len(found) == 1 else set()


def _case_of(task: Task, fixed: SparseBlock | None) -> Case:
    """The case of ``task`` with the kernel's own config."""
    try:
        family = get_family(task.family)
    except KeyError as error:
        raise UsageError(f"the sweep is of {task.family}, a family that is not installed") from error
    config = family.default_config(task.problem, task.pass_name, task.arch, fixed)
    block = fixed or family.sparse_block(task.problem, task.pass_name, config)
    return Case(
        family=task.family,
        version=task.version or family.versions[-1],
        arch=task.arch,
        problem=task.problem,
        pass_name=task.pass_name,
        config=config,
        sparse_block=block,
        passes=(task.pass_name,),
        configs={task.pass_name: config},
        sparse_blocks={task.pass_name: block},
    )
