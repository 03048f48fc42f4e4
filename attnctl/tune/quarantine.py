"""Configs that killed a worker, hung, or gave wrong results: not tried again with the same versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from attnctl.errors import AttnctlError
from attnctl.files import locked, write_atomic
from attnctl.gpu.protocol import Environment, Result
from attnctl_kernels.contract import Candidate, Frozen, Outcome, Task, fingerprint

DANGEROUS = frozenset({Outcome.WORKER_DIED, Outcome.TIMEOUT, Outcome.WRONG_RESULT})


class Entry(Frozen):
    """One config that must not be tried again, and everything that would make it worth another try."""

    family: str
    problem: str  # slug, for people
    pass_name: str
    candidate: Candidate
    outcome: Outcome
    reason: str
    device_name: str
    versions: dict[str, str]


class _File(Frozen):
    entries: dict[str, Entry] = {}


class Quarantine:
    """``quarantine.json`` in the state folder. Safe to use from several processes at once."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "quarantine.json"

    def find(self, task: Task, environment: Environment) -> Mapping[str, Entry]:
        """The configs of ``task`` that must not be tried in ``environment``, by :attr:`Candidate.key`."""
        return {
            entry.candidate.key: entry
            for key, entry in self._read().items()
            if key == _key(task, entry.candidate, environment)
        }

    def suspects(self, task: Task) -> frozenset[str]:
        """The configs that :meth:`find` may return, whatever the environment."""
        kind = (task.family, task.problem.slug, task.pass_name)
        entries = self._read().values()
        return frozenset(each.candidate.key for each in entries if (each.family, each.problem, each.pass_name) == kind)

    def add(self, task: Task, candidate: Candidate, environment: Environment, result: Result) -> None:
        entry = Entry(
            family=task.family,
            problem=task.problem.slug,
            pass_name=task.pass_name,
            candidate=candidate,
            outcome=result.outcome,
            reason=result.reason,
            device_name=environment.device_name,
            versions=environment.running_versions,
        )
        with locked(self.path):
            entries = {**self._read(), _key(task, candidate, environment): entry}
            content = _File(entries=entries).model_dump(mode="json")
            write_atomic(self.path, json.dumps(content, indent=1, sort_keys=True) + "\n")

    def _read(self) -> dict[str, Entry]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AttnctlError(f"{self.path}: cannot be read: {error.strerror}", "move it away") from error
        except UnicodeDecodeError as error:
            raise AttnctlError(f"{self.path}: is damaged: it is not text", "move it away") from error
        try:
            return _File.model_validate_json(text).entries
        except ValidationError as error:
            raise AttnctlError(f"{self.path}: is damaged: {error.errors()[0]['msg']}", "move it away") from error


def _key(task: Task, candidate: Candidate, environment: Environment) -> str:
    versions = environment.running_versions
    return fingerprint([task.fingerprint, candidate.key, environment.device_name, versions])[:16]
