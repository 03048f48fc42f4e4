"""Tuned profiles that no program would use as they stand, or that nobody asks for any more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attnctl.errors import AttnctlError
from attnctl.profile.here import Here
from attnctl.profile.load import SUFFIXES, Loaded
from attnctl.profile.lookup import Stale, lookup
from attnctl.profile.problems import tasks
from attnctl.profile.stale import differences
from attnctl.profile.tuned import Entry, Tuned, entry_key, open_tuned, tuned_root
from attnctl.rules.finding import Finding
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity

CODE = "TUNED"
_ENTRY = re.compile(r"^- ", re.MULTILINE)  # as the tool writes them
_RESTORE = "delete it, or restore what it was tuned for"


def check(loaded: Loaded) -> Iterator[Finding]:
    """Findings about every tuned profile beside ``loaded``, which has no errors of form."""
    assert loaded.profile is not None
    for path in sorted(tuned_root(loaded.path).glob(f"*/{loaded.path.stem}.yaml")):
        try:
            tuned = open_tuned(path)
        except AttnctlError as error:
            message = error.message.removeprefix(f"{path}: ")
            yield _finding(path, 1, Severity.ERROR, "tuned-file-damaged", message, fix=error.hint)
            continue
        yield from _stale(loaded, path, tuned)
        yield from _unused(loaded, path, tuned)


def orphans(folder: Path) -> Iterator[Finding]:
    """Tuned profiles whose profile is gone. ``folder`` holds profiles."""
    for path in sorted((folder / "tuned").glob("*/*.yaml")):
        if not any((folder / f"{path.stem}{suffix}").exists() for suffix in SUFFIXES):
            message = f"there is no profile {path.stem} in {folder} any more"
            yield _finding(path, 1, Severity.WARNING, "tuned-file-orphaned", message, fix=_RESTORE)


def _stale(loaded: Loaded, path: Path, tuned: Tuned) -> Iterator[Finding]:
    assert loaded.profile is not None
    device_name = path.parent.name
    here = Here.of(get_family(loaded.profile.family), loaded.profile.arch, device_name)
    versions = here.versions(tuned.entries.values())
    for task in tasks(loaded.profile):
        key = entry_key(task, loaded.profile.sparse_block_of(task.pass_name))
        found = lookup(loaded, task, device_name, versions=versions)
        advice = f"attnctl tune {loaded.path} on {device_name}"
        if isinstance(found, Stale):
            line, fault = _line(path, key), f"{task.problem.slug} {task.pass_name} is stale: {found.reason}"
            yield _finding(path, line, Severity.ERROR, "tuned-entry-stale", fault, fix=advice)
        elif key not in tuned.entries:
            fault = f"{task.problem.slug} {task.pass_name} is not tuned for {device_name}"
            yield _finding(path, 1, Severity.WARNING, "problem-not-tuned", fault, fix=advice)


def _unused(loaded: Loaded, path: Path, tuned: Tuned) -> Iterator[Finding]:
    assert loaded.profile is not None
    wanted = {entry_key(task, loaded.profile.sparse_block_of(task.pass_name)) for task in tasks(loaded.profile)}
    for key, entry in tuned.entries.items():
        if key not in wanted:
            fault = f"{entry.problem.slug} {entry.pass_name} is of no problem of the profile: {_nearest(loaded, entry)}"
            yield _finding(path, _line(path, key), Severity.WARNING, "tuned-entry-unused", fault, fix=_RESTORE)


def _nearest(loaded: Loaded, entry: Entry) -> str:
    assert loaded.profile is not None
    profile = loaded.profile
    changes = [[*differences(entry, task, profile.sparse_block_of(task.pass_name))] for task in tasks(profile)]
    fewest = min(map(len, changes))
    return (
        ", ".join(next(each for each in changes if len(each) == fewest)) or "sparse_block is fixed in one of them only"
    )


def _line(path: Path, key: str) -> int:
    """Of the entry with this fingerprint."""
    text = path.read_text(encoding="utf-8")
    begins = [text.count("\n", 0, match.start()) + 1 for match in _ENTRY.finditer(text)]
    at = text.count("\n", 0, text.index(key)) + 1
    return max((line for line in begins if line <= at), default=1)


def _finding(path: Path, line: int, severity: Severity, name: str, message: str, *, fix: str) -> Finding:
    return Finding(CODE, name, severity, str(path), line, 1, "", message, fix=fix)
