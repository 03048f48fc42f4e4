"""One decision for all ranks of a job.

Ranks that decide for themselves may differ: a tuned profile can be replaced while they start, and a file server may
show one node an older file than another. Kernels with different tiles then ask for different workspaces, and a
collective waits for ever. So the first rank that needs a config publishes its decision, and every other takes it.

A decision is a file that is linked into place whole; whoever comes second finds it there. The folder is
``ATTNCTL_JOB_DIR``, or the user's cache folder, which on most clusters all nodes see.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attnctl_kernels.contract import fingerprint

JOB_ID_VARIABLE = "ATTNCTL_JOB_ID"
JOB_DIR_VARIABLE = "ATTNCTL_JOB_DIR"
OFF = "off"  # as ATTNCTL_JOB_DIR: every rank decides for itself

_RANKS = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_ON_ONE_NODE = (("LOCAL_WORLD_SIZE", "WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"))
_SLURM = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
_TORCHELASTIC = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
_KEPT_S = 30 * 86400.0  # decisions of jobs that ended long ago are removed
_PATIENCE_S = 5.0  # a file server may take a moment to show what another node has linked
_POLL_S = 0.1


class NotShared(Exception):
    """Several ranks run, and they cannot share a decision. The text says why."""


def several_ranks(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher says that this process is one of several."""
    counts = (environ.get(name, "") for name in _RANKS)
    return any(count.isdecimal() and int(count) > 1 for count in counts)


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """What all ranks of this job, and no other job, have in common.

    Raises:
        NotShared: nothing that would do is known. A job's number alone would not: one allocation runs many programs.
    """
    if given := environ.get(JOB_ID_VARIABLE):
        return given
    elastic = [environ.get(name, "") for name in _TORCHELASTIC]
    named = elastic[0] not in {"", "none"}  # what torchrun sets where no --rdzv-id is given
    step = [environ.get(name, "") for name in _SLURM]
    if step[1] and step[2]:
        return "-".join(["slurm", *step, *(elastic if named else ())])
    if named:
        return "-".join(["torchelastic", *elastic])
    if any(environ.get(here) and environ.get(here) == environ.get(everywhere) for here, everywhere in _ON_ONE_NODE):
        return "-".join(["parent", *_parent(), elastic[-1]])
    if namespace := environ.get("PMIX_NAMESPACE"):
        return f"pmix-{namespace}"
    raise NotShared(f"the launcher gives the job no name: set {JOB_ID_VARIABLE} to one that no other job has")


def shared(question: object, decide: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The job's answer to ``question``: what the first rank to ask got from ``decide``.

    Raises:
        NotShared: the ranks cannot agree; nothing has been decided.
    """
    folder = _folder()
    path = folder / f"{fingerprint(question)[:32]}.json"
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _remove_old(folder.parent)
    except (OSError, ValueError) as error:
        raise NotShared(f"{folder} cannot be used: {error}") from error
    decided = decide()
    try:
        return decided if _publish(path, decided) else _wait_for(path)
    except (OSError, ValueError) as error:
        raise NotShared(f"{folder} cannot be used: {error}") from error


def _folder() -> Path:
    named = os.environ.get(JOB_DIR_VARIABLE)
    if named == OFF:
        raise NotShared(f"{JOB_DIR_VARIABLE} is {OFF}")
    name = fingerprint(job_id())[:32]
    if named:
        return Path(named) / name
    from platformdirs import user_cache_path  # noqa: PLC0415 - only in jobs of several ranks

    return user_cache_path("attnctl") / "jobs" / name


def _publish(path: Path, decided: dict[str, Any]) -> bool:
    """Put the decision there, whole; False: another rank was first."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            json.dump(decided, file)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _wait_for(path: Path) -> dict[str, Any]:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _read(path)
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_S)


def _read(path: Path) -> dict[str, Any]:
    decided: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return decided


def _remove_old(jobs: Path) -> None:
    for folder in jobs.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _parent() -> tuple[str, str, str]:
    """The launcher of this node's ranks: boot, process number, and when that process started."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    stat = Path(f"/proc/{os.getppid()}/stat")
    try:
        started = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        return boot.read_text(encoding="ascii").strip(), str(os.getppid()), started
    except (OSError, IndexError) as error:
        raise NotShared(f"the ranks' launcher cannot be told apart: {error}; set {JOB_ID_VARIABLE}") from error
