"""A program's way to its config: :func:`attnctl.load_config`. Imports no framework."""

from __future__ import annotations

import os
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from attnctl.errors import UsageError
from attnctl.gpu.names import cpu_name, gpu_name
from attnctl.profile.candidate import profile_candidate
from attnctl.profile.load import Loaded, load
from attnctl.profile.lookup import Hit, Miss, Stale, case_for, lookup
from attnctl.profile.problems import tasks
from attnctl.profile.tuned import read, tuned_path
from attnctl_kernels.contract import PassName, Task, join_words
from attnctl_kernels.families import get_family


class NotTuned(UserWarning):
    """There is no tuned config that can be used: the profile's own is."""


def load_config(
    profile: str | os.PathLike[str],
    *,
    seqlen_q: int | None,
    seqlen_k: int | None,
    device_name: str | None,
    pass_name: PassName,
) -> dict[str, Any]:
    """See :func:`attnctl.load_config`."""
    loaded = load(Path(profile))
    if loaded.profile is None:
        first = loaded.findings[0]
        raise UsageError(f"{profile}:{first.line}:{first.column}: {first.code} {first.message}", "run attnctl validate")
    task = _choose(loaded, seqlen_q, seqlen_k, pass_name)
    name = device_name or (gpu_name() if get_family(task.family).arches else cpu_name())
    if name is None:
        found: Hit | Miss | Stale = Miss(loaded.path, "no GPU, or several kinds, are here: give device_name")
    else:
        found = lookup(loaded, task, name, versions=_installed(tuned_path(loaded.path, name)))
    if isinstance(found, Hit):
        candidate = found.candidate
    else:
        candidate = profile_candidate(case_for(loaded, task))
        warnings.warn(_excuse(loaded, found), NotTuned, stacklevel=3)
    block = {} if candidate.sparse_block is None else {"sparse_block": candidate.sparse_block}
    return {**candidate.config, **block}


def _choose(loaded: Loaded, seqlen_q: int | None, seqlen_k: int | None, pass_name: PassName) -> Task:
    assert loaded.profile is not None
    all_tasks = tasks(loaded.profile)
    if pass_name not in loaded.profile.passes:
        raise UsageError(
            f"{loaded.path}: has no {pass_name} pass", f"passes: {join_words(loaded.profile.passes, 'and')}"
        )
    of_pass = [each for each in all_tasks if each.pass_name == pass_name]
    chosen = [
        each
        for each in of_pass
        if seqlen_q in (None, each.problem.seqlen_q) and seqlen_k in (None, each.problem.seqlen_k)
    ]
    if len(chosen) == 1:
        return chosen[0]
    lengths = join_words([f"{each.problem.seqlen_q} x {each.problem.seqlen_k}" for each in of_pass], "and")
    fault = "several problems match" if chosen else f"no problem has seqlen_q={seqlen_q}, seqlen_k={seqlen_k}"
    raise UsageError(f"{loaded.path}: {fault}", f"seqlen_q x seqlen_k in the profile: {lengths}")


def _installed(path: Path) -> dict[str, str]:
    """Versions here of the packages that the tuned profile names."""
    named = {name for entry in read(path).values() for name in entry.versions}
    versions = {}
    for name in named:
        try:
            versions[name] = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue
    return versions


def _excuse(loaded: Loaded, found: Miss | Stale) -> str:
    why = f"{loaded.path}: {found.reason}"
    if isinstance(found, Stale):
        return f"{why} ({found.path}); the profile's own config is used until attnctl tune has run again"
    others = f" (tuned: {join_words(found.devices, 'and')})" if found.devices else ""
    return f"{why}{others}; the profile's own config is used"
