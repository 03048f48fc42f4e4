"""What this machine is, and what each family can do on it. Asks other processes; imports no framework."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from attnctl import extras
from attnctl._version import __version__
from attnctl.bytecode import compiled_anew
from attnctl.errors import AttnctlError, MissingExtra
from attnctl.gpu.client import Worker
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import Hello
from attnctl_kernels.contract import Family, join_words
from attnctl_kernels.families import family_names, get_family

_SMI_DEADLINE_S = 20.0
_SMI_QUERY = ("--query-gpu=index,name,compute_cap,memory.total,driver_version", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    arch: str
    memory_mib: int
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    attnctl: str
    python: str
    system: str
    cpus: int
    gpus: tuple[Gpu, ...]
    no_gpu: str  # why there is none; empty if there is one
    compiled_anew: tuple[str, ...]  # folders of packages of which each worker compiles the modules anew


@dataclass(frozen=True, slots=True)
class Ability:
    """One family on this machine. Rules are there for every family that could be loaded."""

    family: str
    title: str
    versions: tuple[str, ...]
    arches: tuple[str, ...]
    rules: int
    device: str | None  # where it can be tuned and benchmarked; None: not here
    reason: str = ""  # why not
    fix: str = ""  # a command that helps
    broken: bool = False  # it cannot even be loaded


def machine() -> Machine:
    gpus, no_gpu = _gpus()
    return Machine(
        attnctl=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        gpus=gpus,
        no_gpu=no_gpu,
        compiled_anew=tuple(map(str, compiled_anew())),
    )


def abilities(gpus: tuple[Gpu, ...], deadline_s: float = 90.0) -> list[Ability]:
    """One per family, by name. What cheap checks do not rule out is asked of a worker process."""
    found: dict[str, Ability] = {}
    workers: dict[str, tuple[Family, Hello, Worker]] = {}
    with tempfile.TemporaryDirectory(prefix="attnctl-doctor-") as folder:
        place = WorkerPlace(Path(folder), "doctor")
        for name in family_names():
            try:
                family = get_family(name)
                hello = Hello(family=name, **_target(family, gpus))
                reason, fix = _obstacle(family, hello)
                found[name] = _ability(family, None, reason, fix)
            except Exception as error:  # noqa: BLE001 - someone else's family, and anything may be wrong with it
                summary = " ".join(f"{type(error).__name__}: {error}".split())
                found[name] = Ability(name, name, (), (), 0, None, f"cannot be loaded: {summary}", broken=True)
                continue
            if not reason:
                worker = place.worker(hello, Deadlines(start=deadline_s))
                worker.spawn()  # all import their frameworks at once
                workers[name] = family, hello, worker
        for name, (family, hello, worker) in workers.items():
            with worker:
                reason, fix = _hello(worker)
            found[name] = _ability(family, None if reason else hello.device, reason, fix)
    return list(found.values())


def _ability(family: Family, device: str | None, reason: str, fix: str) -> Ability:
    return Ability(
        family.name, family.title, family.versions, family.arches, len(family.rules()), device, reason=reason, fix=fix
    )


def _target(family: Family, gpus: tuple[Gpu, ...]) -> dict[str, str | None]:
    """The device that a family would be tuned on: the first GPU that it has kernels for, or the CPU."""
    for gpu in gpus:
        if not family.arches or gpu.arch in family.arches:
            return {"device": f"cuda:{gpu.index}", "arch": gpu.arch}
    return {"device": "cpu", "arch": None}


def _obstacle(family: Family, hello: Hello) -> tuple[str, str]:
    """What rules a family out without starting anything, and the command that would help."""
    package = type(family).__module__.rpartition(".")[0]
    if not family.tunable or importlib.util.find_spec(f"{package}.launch") is None:
        return "attnctl has rules for it, but no launcher", ""
    if family.arches and hello.arch is None:
        return f"needs a GPU: {join_words(family.arches)}", ""
    if absent := extras.missing(family.extra):
        return f"{join_words(absent, 'and')} not installed", extras.install_command(family.extra)
    return "", ""


def _hello(worker: Worker) -> tuple[str, str]:
    try:
        worker.start()
    except MissingExtra as error:
        return error.message, extras.install_command(error.extra)
    except AttnctlError as error:
        return error.message, ""
    except WorkerLost as lost:
        return f"its worker was lost: {lost.reason}", ""
    return "", ""


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    """NVIDIA's GPUs as the driver's own tool sees them; without any, the reason."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), "nvidia-smi is not installed, so there is no NVIDIA driver"
    try:
        done = subprocess.run(
            [tool, *_SMI_QUERY], capture_output=True, text=True, timeout=_SMI_DEADLINE_S, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return (), f"nvidia-smi did not answer in {_SMI_DEADLINE_S:g} s"
    except OSError as error:
        return (), f"nvidia-smi cannot be run: {error.strerror}"
    gpus = tuple(gpu for line in done.stdout.splitlines() if (gpu := _gpu(line)))
    if gpus:
        return gpus, ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return (), f"nvidia-smi says: {lines[-1] if lines else 'nothing'}"


def _gpu(line: str) -> Gpu | None:
    match [part.strip() for part in line.split(",")]:
        case [index, name, capability, memory, driver] if index.isdigit() and "." in capability:
            arch = "sm_" + capability.replace(".", "")
            return Gpu(int(index), name, arch, int(memory) if memory.isdigit() else 0, driver)
    return None
