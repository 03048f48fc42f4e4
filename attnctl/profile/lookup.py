"""Find the tuned config of a task on a device, or say why none can be used as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from attnctl.gpu.names import device_slug
from attnctl.profile.candidate import case_of, errors
from attnctl.profile.load import Loaded
from attnctl.profile.problems import cases_of
from attnctl.profile.scalars import spell
from attnctl.profile.tuned import Entry, entry_key, read, tuned_path, tuned_root, unknown_fields
from attnctl_kernels.contract import Candidate, Case, Task
from attnctl_kernels.families import get_family

_HARMLESS = {"attnctl", "python"}  # do not change how fast or how right a kernel is


@dataclass(frozen=True, slots=True)
class Hit:
    """A tuned config that the rules still allow, of the versions that are running as far as they are known."""

    path: Path
    entry: Entry
    notes: tuple[str, ...] = ()

    @property
    def candidate(self) -> Candidate:
        return stored_candidate(self.entry)


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing is stored for this task and device. ``devices`` have a tuned profile of this name: never borrowed."""

    path: Path
    reason: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stale:
    """Something is stored that must be measured again before it is used."""

    path: Path
    entry: Entry
    reason: str


def lookup(
    loaded: Loaded,
    task: Task,
    device_name: str,
    *,
    root: Path | None = None,
    versions: Mapping[str, str] | None = None,
    num_sms: int | None = None,
) -> Hit | Miss | Stale:
    """What is stored for ``task`` on ``device_name``, in any spelling of that name.

    Args:
        loaded: a profile without errors.
        task: one of the profile's.
        device_name: as the framework reports it, or its slug.
        root: where tuned profiles are; beside the profile if not given.
        versions: what is running; only packages that are named here are compared.
        num_sms: of the device; another number is another device, such as a slice of it.
    """
    assert loaded.profile is not None
    path = tuned_path(loaded.path, device_name, root)
    entries = read(path)
    entry = entries.get(entry_key(task, loaded.profile.sparse_block_of(task.pass_name)))
    if entry is None:
        return _miss(loaded.path, path, root, device_name, found=bool(entries))
    reason = (
        _versions_differ(entry, versions)
        or _another_device(entry, num_sms)
        or _malformed(task, entry)
        or _forbidden(loaded, task, entry)
    )
    if reason:
        return Stale(path, entry, reason)
    unknown = unknown_fields(entry)
    return Hit(path, entry, (f"unknown fields: {', '.join(unknown)}",) if unknown else ())


def stored_candidate(entry: Entry) -> Candidate:
    """The config of an entry, in the family's order: the file sorts by name."""
    order = list(get_family(entry.family).config_model(entry.pass_name).model_fields)
    known = {name: entry.config[name] for name in order if name in entry.config}
    return Candidate(config={**known, **entry.config}, sparse_block=entry.sparse_block)


def case_for(loaded: Loaded, task: Task) -> Case:
    """The case of ``task`` with the profile's own config."""
    assert loaded.profile is not None
    return next(each for each in cases_of(loaded.profile, task.problem) if each.pass_name == task.pass_name)


def _miss(profile: Path, path: Path, root: Path | None, device_name: str, *, found: bool) -> Miss:
    if found:
        return Miss(path, "it has no entry of this problem and pass")
    folders = sorted((root or tuned_root(profile)).glob(f"*/{profile.stem}.yaml"))
    devices = tuple(each.parent.name for each in folders)
    return Miss(path, f"nothing is tuned for {device_slug(device_name)}", devices)


def _versions_differ(entry: Entry, running: Mapping[str, str] | None) -> str:
    if not entry.versions:
        return "no versions are recorded"
    then = entry.versions
    changed = [
        f"{name} {then[name]} then, {running[name]} now"
        for name in sorted(then.keys() & (running or {}).keys() - _HARMLESS)
        if running is not None and then[name] != running[name]
    ]
    return f"tuned with other versions: {', '.join(changed)}" if changed else ""


def _another_device(entry: Entry, num_sms: int | None) -> str:
    if num_sms is None or entry.num_sms in (None, num_sms):
        return ""
    return f"tuned on {entry.num_sms} SMs, this device has {num_sms}"


def _malformed(task: Task, entry: Entry) -> str:
    """A file that was changed by hand, or comes from another version, may hold anything."""
    if entry.family != task.family:
        return f"the entry is of family {entry.family}, not {task.family}"
    if not entry.config:
        return "the entry has an empty config"
    if entry.sparse_block and min(entry.sparse_block) < 1:
        return f"sparse_block {list(entry.sparse_block)} has a side below 1"
    try:
        get_family(task.family).config_model(task.pass_name).model_validate(entry.config, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        return f"config.{name} {spell(entry.config.get(name))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""


def _forbidden(loaded: Loaded, task: Task, entry: Entry) -> str:
    broken = errors(case_of(case_for(loaded, task), stored_candidate(entry)))
    return f"{broken[0][0].code}: {broken[0][1].message}" if broken else ""
