"""What a benchmark of one problem and pass runs: the config on disk, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attnctl.errors import UsageError
from attnctl.gpu.protocol import Environment
from attnctl.profile.candidate import case_of, default_candidate, errors, profile_candidate
from attnctl.profile.load import Loaded
from attnctl.profile.lookup import Hit, Miss, case_for, lookup
from attnctl.profile.problems import tasks
from attnctl.profile.tuned import Latency
from attnctl.tune.finals import AGAIN
from attnctl_kernels.contract import Candidate, Case, Family, Task
from attnctl_kernels.families import family_names, get_family

TUNED, PROFILE = "tuned", "profile"  # names of the first row
DEFAULT, INCUMBENT = "default", "incumbent"
BASE = "base"  # what was on disk at another commit

BaseConfig = Callable[[Task, Environment], Candidate | None]


@dataclass(frozen=True, slots=True)
class Guest:
    """Runs in processes of its own: another family on the same problem, at its own default, or the base's kernel."""

    task: Task
    candidate: Candidate
    python: str | None = None  # an interpreter with other packages; None: this one


@dataclass
class Plan:
    """Contenders by name, the config on disk first; and why others are not among them."""

    task: Task
    case: Case  # of the profile's own config
    head: str
    contenders: dict[str, Candidate]
    guests: dict[str, Guest] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # name -> the contender with the same config
    barred: dict[str, str] = field(default_factory=dict)  # name -> why it may not run
    stored: Latency | None = None  # of the config on disk, where it is still comparable
    notes: list[str] = field(default_factory=list)

    @property
    def aa(self) -> tuple[str, str]:
        """The two slots in which the config on disk runs."""
        return self.head, self.head + AGAIN


def check_against(against: Sequence[str], family: str) -> None:
    """Refuse names that are neither a baseline nor another family.

    Raises:
        UsageError: such a name.
    """
    for name in against:
        if name == family:
            raise UsageError(f"--against {name}: that is the profile's own family", "name default or incumbent")
        if name not in (DEFAULT, INCUMBENT, *family_names()):
            known = ", ".join((DEFAULT, INCUMBENT, *family_names()))
            raise UsageError(f"--against {name}: no such baseline or family", f"known: {known}")


def plans(
    loaded: Loaded,
    environment: Environment,
    against: Sequence[str],
    tuned_root: Path | None = None,
    *,
    base: BaseConfig | None = None,
    base_python: str | None = None,
) -> Iterator[Plan]:
    """One per problem and pass, in the profile's order."""
    assert loaded.profile is not None
    for task in tasks(loaded.profile, loaded.seq_lens):
        case = case_for(loaded, task)
        ignored = get_family(task.family).cannot_run(case)
        if ignored:
            raise UsageError(f"{loaded.path}: cannot be measured as written: {ignored}")
        fixed = loaded.profile.sparse_block_of(task.pass_name)
        plan = _on_disk(loaded, task, case, environment, tuned_root)
        if base and (then := base(task, environment)):
            if base_python:
                plan.guests[BASE] = Guest(task, then, base_python)
            else:
                _enter(plan, BASE, then)
        for name in dict.fromkeys(against):
            if name == DEFAULT:
                _enter(plan, name, default_candidate(case, fixed))
            elif name == INCUMBENT:
                _enter(plan, name, profile_candidate(case))
            else:
                _invite(plan, name, get_family(name), environment)
        _bar_invalid(plan)
        yield plan


def _on_disk(loaded: Loaded, task: Task, case: Case, environment: Environment, tuned_root: Path | None) -> Plan:
    """A plan with its first contender: the tuned config, or the profile's own."""
    found = lookup(
        loaded,
        task,
        environment.device_name,
        root=tuned_root,
        versions=environment.running_versions,
        num_sms=environment.num_sms,
    )
    if isinstance(found, Miss):
        note = f"{found.reason} ({found.path}): the profile's own config is measured"
        return Plan(task, case, PROFILE, {PROFILE: profile_candidate(case)}, notes=[note])
    fields = get_family(task.family).config_model(task.pass_name).model_fields
    config = {name: found.entry.config[name] for name in fields if name in found.entry.config}  # the file sorts them
    tuned = Candidate(config=config, sparse_block=found.entry.sparse_block)
    if isinstance(found, Hit):
        return Plan(task, case, TUNED, {TUNED: tuned}, stored=found.entry.latency, notes=list(found.notes))
    note = f"{found.path} is stale: {found.reason}; its stored time is not compared"
    return Plan(task, case, TUNED, {TUNED: tuned}, notes=[note])


def _enter(plan: Plan, name: str, candidate: Candidate) -> None:
    twin = next((other for other, each in plan.contenders.items() if each.key == candidate.key), None)
    if twin:
        plan.same[name] = twin
    else:
        plan.contenders[name] = candidate


def _invite(plan: Plan, name: str, family: Family, environment: Environment) -> None:
    case = plan.case
    arch = case.arch or environment.arch
    if case.pass_name not in family.passes:
        plan.barred[name] = f"has no {case.pass_name} pass"
    elif family.arches and arch not in family.arches:
        plan.barred[name] = f"does not run on {arch or 'a machine without a GPU'}"
    else:
        config = family.default_config(case.problem, case.pass_name, arch, None)
        block = family.sparse_block(case.problem, case.pass_name, config)
        visit = Case(
            name, family.versions[-1], arch, case.problem, case.pass_name, config, block, passes=(case.pass_name,)
        )
        candidate = Candidate(config=config, sparse_block=block)
        if broken := errors(case_of(visit, candidate)):
            plan.barred[name] = f"breaks {broken[0][0].code}: {broken[0][1].message}"
        else:
            task = plan.task.model_copy(update={"family": name, "version": visit.version, "arch": arch})
            plan.guests[name] = Guest(task, candidate)


def _bar_invalid(plan: Plan) -> None:
    """A config may have become invalid since it was tuned, and a kernel's own default is not always a valid one."""
    for name, candidate in list(plan.contenders.items()):
        if broken := errors(case_of(plan.case, candidate)):
            plan.barred[name] = f"breaks {broken[0][0].code}: {broken[0][1].message}"
            del plan.contenders[name]
