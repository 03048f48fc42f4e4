"""Find the tuned config of a task on a device, or say why none can be used as it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from attnctl.gpu.names import device_slug
from attnctl.profile.load import Loaded
from attnctl.profile.problems import cases_of
from attnctl.profile.stale import differences, stored_candidate, why_stale
from attnctl.profile.tuned import Entry, entry_key, open_tuned, tuned_path, tuned_root, unknown_fields
from attnctl_kernels.contract import Candidate, Case, Task

__all__ = ["Hit", "Miss", "Stale", "case_for", "lookup", "stored_candidate"]


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
    only_versions: bool = False  # nothing else is wrong: its config is worth measuring

    @property
    def candidate(self) -> Candidate | None:
        """What `tune` measures again; None where the config cannot be right here."""
        return stored_candidate(self.entry) if self.only_versions else None


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
        task: one of the profile's, or one of its tasks at another length.
        device_name: as the framework reports it, or its slug.
        root: where tuned profiles are; beside the profile if not given.
        versions: what is running; only packages that are named here are compared.
        num_sms: of the device; another number is another device, such as a slice of it.
    """
    assert loaded.profile is not None
    path = tuned_path(loaded.path, device_name, root)
    tuned = open_tuned(path)
    if not tuned.entries:
        folders = sorted((root or tuned_root(loaded.path)).glob(f"*/{loaded.path.stem}.yaml"))
        others = tuple(each.parent.name for each in folders)
        return Miss(path, f"nothing is tuned for {device_slug(device_name)}", others)
    fixed = loaded.profile.sparse_block_of(task.pass_name)
    entry = tuned.entries.get(entry_key(task, fixed))
    if tuned.device_name != device_slug(device_name):
        reason = f"device_name: the file is of {tuned.device_name}, not of {device_slug(device_name)}"
        return Stale(path, entry, reason) if entry else Miss(path, reason)
    if entry is None:
        return Miss(path, _nearest_difference(tuned.entries.values(), task, fixed))
    changed = ", ".join(differences(entry, task, fixed)) if entry.family == task.family else ""
    case = case_for(loaded, task)
    reason = changed or why_stale(entry, case, versions=versions, num_sms=num_sms)
    if reason:
        apart_from_versions = changed or why_stale(entry, case, versions=None, num_sms=num_sms)
        return Stale(path, entry, reason, only_versions=not apart_from_versions)
    unknown = unknown_fields(entry)
    return Hit(path, entry, (f"unknown fields: {', '.join(unknown)}",) if unknown else ())


def case_for(loaded: Loaded, task: Task) -> Case:
    """The case of ``task`` with the profile's own config."""
    assert loaded.profile is not None
    return next(each for each in cases_of(loaded.profile, task.problem) if each.pass_name == task.pass_name)


def _nearest_difference(entries: Iterable[Entry], task: Task, fixed: tuple[int, int] | None) -> str:
    """What keeps the entry that comes nearest from being the one."""
    nearest = min((list(differences(each, task, fixed)) for each in entries), key=len)
    if not nearest:  # the profile leaves the sparse block open now, or fixes it by now
        return "sparse_block: the profile fixes it now and did not then, or the other way round"
    return f"no entry of this problem and pass; the nearest has {', '.join(nearest)}"
