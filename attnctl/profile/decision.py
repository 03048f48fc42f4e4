"""Which config a program gets for one call, and every step that led there.

In this order: the tuned config of exactly these lengths, in the first folder that has one; the tuned config of the
nearest lengths that the rules allow at these; the profile's own config; the kernel's default. Nothing that a rule
forbids is ever handed out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from attnctl.errors import UsageError
from attnctl.profile.candidate import case_of, default_candidate, errors, profile_candidate
from attnctl.profile.here import Here
from attnctl.profile.load import Loaded
from attnctl.profile.lookup import Hit, Miss, case_for, lookup
from attnctl.profile.roots import TUNED_DIR, Root, roots
from attnctl.profile.stale import differences, stored_candidate, task_of, why_stale
from attnctl.profile.tuned import Entry, entry_key, open_tuned, tuned_path
from attnctl_kernels.contract import Candidate, Case, Problem, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Violation

_LENGTHS = frozenset({"problem.seqlen_q", "problem.seqlen_k"})


class Source(StrEnum):
    TUNED = "tuned"  # for exactly these lengths
    NEAREST = "nearest"  # for others, and allowed at these
    PROFILE = "profile"
    DEFAULT = "default"  # the kernel's own choice


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was looked at: where, and what came of it."""

    where: str
    result: str
    used: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    task: Task
    device_name: str | None
    source: Source
    candidate: Candidate
    steps: tuple[Step, ...]
    path: Path | None = None  # the tuned profile that it comes from
    entry: Entry | None = None  # likewise
    why_not_tuned: str = ""  # empty: it is tuned for exactly this
    others: tuple[str, ...] = ()  # devices that have a tuned profile of this name


def decide(loaded: Loaded, task: Task, *, device_name: str | None = None, tuned_dir: Path | None = None) -> Decision:
    """Choose the config of ``task`` on ``device_name``, or on this machine.

    Raises:
        UsageError: no config is allowed at these lengths, or a folder that is named is not there.
        AttnctlError: a tuned profile is damaged.
    """
    here = Here.of(get_family(task.family), task.arch, device_name)
    search = _Search(loaded, task, case_for(loaded, task), here, roots(loaded.path, tuned_dir))
    if here.device_name is None:
        return search.untuned(here.how)
    return search.exact() or search.nearest() or search.untuned(search.reason)


class _Search:
    """One decision in the making: ``steps`` grows, and ``reason`` says why there is no exact entry."""

    def __init__(self, loaded: Loaded, task: Task, case: Case, here: Here, places: Sequence[Root]) -> None:
        assert loaded.profile is not None
        self.loaded, self.task, self.case, self.here, self.places = loaded, task, case, here, places
        self.device = here.device_name or ""
        self.fixed = loaded.profile.sparse_block_of(task.pass_name)
        self.steps = [Step("device", f"{here.device_name or 'none'}: {here.how}")]
        self.reason = ""
        self.others: tuple[str, ...] = ()

    def exact(self) -> Decision | None:
        stale, missing = "", ""
        for root in self.places:
            if root.path is None:
                self._step(root.name, "not given" if root.name == TUNED_DIR else "not set")
                continue
            path = tuned_path(self.loaded.path, self.device, root.path)
            versions = self.here.versions(open_tuned(path).entries.values())
            found = lookup(self.loaded, self.task, self.device, root=root.path, versions=versions)
            if isinstance(found, Hit):
                notes = "".join(f"; {note}" for note in found.notes)
                self._step(root.name, f"{path}: tuned for exactly these lengths{notes}", used=True)
                return self._decision(Source.TUNED, found.candidate, path, found.entry)
            if isinstance(found, Miss):
                self._step(root.name, f"{path}: {found.reason if path.exists() else 'no such file'}")
                self.others = self.others or found.devices
                if path.exists() or not missing:
                    missing = found.reason
            else:
                self._step(root.name, f"{path}: stale: {found.reason}")
                stale = stale or f"{path} is stale: {found.reason}"
        self.reason = stale or missing
        return None

    def nearest(self) -> Decision | None:
        """Of entries that differ in lengths alone, the nearest in log length that may be used as it stands."""
        for path, entry in self._neighbours():
            where = f"nearest: {lengths_of(entry.problem)}"
            if reason := why_stale(entry, self.case, versions=self.here.versions([entry]), num_sms=None):
                self._step(where, f"{path}: refused: {reason}")
                continue
            self._step(where, f"{path}: the rules allow it here", used=True)
            return self._decision(Source.NEAREST, stored_candidate(entry), path, entry)
        return None

    def untuned(self, reason: str) -> Decision:
        """The profile's own config, or the kernel's default."""
        self.reason = reason
        if not (broken := errors(self.case)):
            self._step("the profile's own config", "the rules allow it", used=True)
            return self._decision(Source.PROFILE, profile_candidate(self.case))
        self._step("the profile's own config", f"refused: {_told(broken)}")
        default = default_candidate(self.case, self.fixed)
        if not (broken := errors(case_of(self.case, default))):
            self._step("the kernel's default", "the rules allow it", used=True)
            return self._decision(Source.DEFAULT, default)
        raise UsageError(
            f"{self.loaded.path}: no config is allowed at {lengths_of(self.task.problem)}: {_told(broken)}",
            f"attnctl validate {self.loaded.path} --seq-len {self.task.problem.seqlen_q}",
        )

    def _neighbours(self) -> Iterator[tuple[Path, Entry]]:
        """By distance; of two at one distance the longer, then the one that is found earlier."""
        found: dict[str, tuple[Path, Entry]] = {}
        for root in self.places:
            path = tuned_path(self.loaded.path, self.device, root.path) if root.path else None
            tuned = open_tuned(path) if path else None
            if path is None or tuned is None or tuned.device_name != self.device:
                continue
            for key, entry in tuned.entries.items():
                changed = {each.partition(" ")[0] for each in differences(entry, self.task, self.fixed)}
                if changed and changed <= _LENGTHS and key == entry_key(task_of(entry), self.fixed):
                    found.setdefault(key, (path, entry))
        yield from sorted(found.values(), key=lambda each: (_distance(each[1], self.task), -each[1].problem.seqlen_k))

    def _step(self, where: str, result: str, *, used: bool = False) -> None:
        self.steps.append(Step(where, result, used))

    def _decision(
        self, source: Source, candidate: Candidate, path: Path | None = None, entry: Entry | None = None
    ) -> Decision:
        device_name, steps = self.here.device_name, tuple(self.steps)
        return Decision(self.task, device_name, source, candidate, steps, path, entry, self.reason, self.others)


def _told(broken: Sequence[tuple[Rule, Violation]]) -> str:
    rule, violation = broken[0]
    return f"{rule.code} {violation.message}"


def _distance(entry: Entry, task: Task) -> float:
    """Rounded, so that 2048 and 8192 are equally far from 4096 on every machine."""
    pairs = (
        (entry.problem.seqlen_q, task.problem.seqlen_q),
        (entry.problem.seqlen_k, task.problem.seqlen_k),
    )
    return round(sum(abs(math.log(there / here)) for there, here in pairs), 9)


def lengths_of(problem: Problem) -> str:
    return f"{problem.seqlen_q} x {problem.seqlen_k}"
