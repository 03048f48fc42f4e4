"""Why a stored entry must not be used as it stands. Every reason names the field that is at fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from attnctl.profile.candidate import case_of, errors
from attnctl.profile.scalars import spell
from attnctl.profile.tuned import Entry
from attnctl_kernels.contract import Candidate, Case, SparseBlock, Task
from attnctl_kernels.families import get_family

_HARMLESS = {"attnctl", "python"}  # do not change how fast or how right a kernel is


def stored_candidate(entry: Entry) -> Candidate:
    """The config of an entry, in the family's order: the file sorts by name."""
    order = list(get_family(entry.family).config_model(entry.pass_name).model_fields)
    known = {name: entry.config[name] for name in order if name in entry.config}
    return Candidate(config={**known, **entry.config}, sparse_block=entry.sparse_block)


def task_of(entry: Entry) -> Task:
    """What an entry says that it was tuned for."""
    return Task(
        family=entry.family,
        version=entry.version,
        arch=entry.arch,
        pass_name=entry.pass_name,
        problem=entry.problem,
    )


def why_stale(entry: Entry, case: Case, *, versions: Mapping[str, str] | None, num_sms: int | None) -> str:
    """The first thing that is wrong with using ``entry`` for ``case``; empty: nothing is.

    Args:
        entry: of any length; that it is the right entry otherwise has been seen to.
        case: what would run.
        versions: what is running; only packages that are named here are compared.
        num_sms: of the device; another number is another device, such as a slice of it.
    """
    return (
        _versions_differ(entry, versions)
        or _another_device(entry, num_sms)
        or _malformed(entry, case)
        or _forbidden(entry, case)
    )


def differences(entry: Entry, task: Task, sparse_block: SparseBlock | None) -> Iterator[str]:
    """Fields in which ``entry`` was not tuned for ``task`` at the profile's own ``sparse_block``."""
    then, now = (_facts(each) for each in (task_of(entry), task))
    for name in then | now:
        if then.get(name) != now.get(name):
            yield f"{name} {_shown(then.get(name))} there, {_shown(now.get(name))} here"
    if sparse_block is not None and entry.sparse_block != sparse_block:
        there = list(entry.sparse_block) if entry.sparse_block else None
        yield f"sparse_block {there} there, {list(sparse_block)} here"


def _facts(task: Task) -> dict[str, Any]:
    data = task.model_dump(mode="json", exclude={"seed"})
    problem: dict[str, Any] = data.pop("problem")
    mask: dict[str, Any] = problem.pop("mask")
    return {
        **{"pass" if name == "pass_name" else name: value for name, value in data.items()},
        **{f"problem.{name}": value for name, value in problem.items()},
        **{f"mask.{name}": value for name, value in mask.items()},
    }


def _shown(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _versions_differ(entry: Entry, running: Mapping[str, str] | None) -> str:
    if not entry.versions:
        return "versions: none are recorded"
    then, now = entry.versions, running or {}
    changed = [
        f"versions.{name} {then[name]} then, {now[name]} now"
        for name in sorted(then.keys() & now.keys() - _HARMLESS)
        if then[name] != now[name]
    ]
    return ", ".join(changed)


def _another_device(entry: Entry, num_sms: int | None) -> str:
    if num_sms is None or entry.num_sms in (None, num_sms):
        return ""
    return f"num_sms {entry.num_sms} then, {num_sms} now"


def _malformed(entry: Entry, case: Case) -> str:
    """A file that was changed by hand, or comes from another version, may hold anything."""
    if entry.family != case.family:
        return f"family: the entry is of {entry.family}, not of {case.family}"
    if not entry.config and get_family(case.family).default_config(  # a kernel that has no parameters here needs none
        case.problem, case.pass_name, case.arch, case.sparse_block
    ):
        return "config: the entry has none"
    if entry.sparse_block and min(entry.sparse_block) < 1:
        return f"sparse_block {list(entry.sparse_block)} has a side below 1"
    try:
        get_family(case.family).config_model(case.pass_name).model_validate(entry.config, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        return f"config.{name} {spell(entry.config.get(name))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""


def _forbidden(entry: Entry, case: Case) -> str:
    broken = errors(case_of(case, stored_candidate(entry)))
    return f"{broken[0][1].field}: {broken[0][0].code} {broken[0][1].message}" if broken else ""
