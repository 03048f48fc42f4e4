"""Which kernels a profile needs: each once, however many problems it serves."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from attnctl.profile.model import Profile
from attnctl.profile.problems import problems
from attnctl.rules.check import Broken, checked_cases
from attnctl_kernels.contract import Candidate, Case, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One config at one kind of problem; ``indices`` count the profile's problems that run it."""

    case: Case
    indices: list[int] = field(default_factory=list)

    @property
    def task(self) -> Task:
        case = self.case
        return Task(
            family=case.family, version=case.version, arch=case.arch, pass_name=case.pass_name, problem=case.problem
        )

    @property
    def candidate(self) -> Candidate:
        return Candidate(config=dict(self.case.config), sparse_block=self.case.sparse_block)


@dataclass(frozen=True, slots=True)
class Plan:
    """``refused`` of ``count`` cases break a rule, and are not compiled; ``notes`` say which others are not."""

    kernels: tuple[Kernel, ...] = ()
    count: int = 0
    refused: int = 0
    notes: tuple[str, ...] = ()


def plan(profile: Profile, seq_lens: Sequence[int]) -> Plan:
    """The kernels of all cases that break no rule but warnings."""
    family = get_family(profile.family)
    kernels: dict[Hashable, Kernel] = {}
    notes: dict[str, None] = {}
    count = refused = 0
    for index, problem in enumerate(problems(profile, seq_lens)):
        for case, broken in checked_cases(profile, problem):
            count += 1
            if _has_error(broken):
                refused += 1
            elif reason := family.cannot_compile(case) or family.cannot_run(case):
                notes[reason] = None
            else:
                kernels.setdefault(kernel_key(case), Kernel(case)).indices.append(index)
    return Plan(tuple(kernels.values()), count, refused, tuple(notes))


def kernel_key(case: Case) -> Hashable:
    """Equal for cases that run the same kernel, in one profile or in several."""
    config = tuple(sorted(case.config.items()))
    target = (case.family, case.version, case.arch, case.pass_name)
    return (target, config, case.sparse_block, get_family(case.family).kernel_key(case))


def by_target(kernels: Sequence[Kernel]) -> Iterator[tuple[tuple[str, str | None], list[Kernel]]]:
    """Kernels of one family and arch, which the same workers compile; each kernel once."""
    found: dict[tuple[str, str | None], dict[Hashable, Kernel]] = {}
    for each in kernels:
        found.setdefault((each.case.family, each.case.arch), {}).setdefault(kernel_key(each.case), each)
    for target, once in found.items():
        yield target, list(once.values())


def _has_error(broken: Sequence[Broken]) -> bool:
    return any(rule.severity is Severity.ERROR for rule, _ in broken)
