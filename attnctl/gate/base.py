"""What git says was on disk at another commit."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from attnctl.errors import Unavailable, UsageError
from attnctl.gpu.names import device_slug
from attnctl.profile.candidate import profile_candidate
from attnctl.profile.load import load
from attnctl.profile.lookup import Miss, case_for, lookup, stored_candidate
from attnctl.profile.problems import tasks
from attnctl.profile.tuned import tuned_path
from attnctl_kernels.contract import Candidate, Task

_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Base:
    """The commit ``ref``; ``folder`` takes what is checked out of it."""

    ref: str
    folder: Path

    def check(self, path: Path) -> None:
        """Refuse what is no commit of the repository that holds ``path``.

        Raises:
            UsageError: there is no such commit, or no repository.
            Unavailable: git is not installed.
        """
        done = _git(path, "rev-parse", "--verify", "--quiet", f"{self.ref}^{{commit}}")
        if done.returncode:
            reason = done.stderr.strip().splitlines()
            raise UsageError(
                f"--base {self.ref}: {path.parent}: {reason[-1] if reason else 'no such commit'}",
                "fetch it first: a shallow clone has no history (actions/checkout: fetch-depth: 0)",
            )

    def candidate(self, path: Path, task: Task, device_name: str) -> Candidate | None:
        """What the profile at ``path`` ran for ``task`` on a device then; None: it had no such problem."""
        then = self._restore(path, path)
        if then is None:
            return None
        self._restore(path, tuned_path(path, device_slug(device_name)))
        loaded = load(then)
        if loaded.profile is None:
            return None
        same = [
            each
            for each in tasks(loaded.profile)
            if (each.problem, each.pass_name, each.family) == (task.problem, task.pass_name, task.family)
        ]
        if not same:
            return None
        found = lookup(loaded, same[0], device_name)
        return (
            profile_candidate(case_for(loaded, same[0])) if isinstance(found, Miss) else stored_candidate(found.entry)
        )

    def _restore(self, profile: Path, path: Path) -> Path | None:
        """``path`` as it was, at the same place relative to the profile; None: it was not there."""
        relative = path.relative_to(profile.parent)
        done = _git(profile, "show", f"{self.ref}:./{relative.as_posix()}")
        if done.returncode:
            return None
        target = self.folder / device_slug(str(profile.absolute())) / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(done.stdout, encoding="utf-8")
        return target


def _git(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(path.absolute().parent), *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
    except FileNotFoundError:
        raise Unavailable("--base needs git, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"git did not answer in {_DEADLINE_S:g} s") from None
