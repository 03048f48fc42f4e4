"""Compile flash-attn-4's kernels, and call them on sm_90. Worker processes only.

Every pattern but ``dense`` runs as an element predicate plus block lists, unless the candidate asks for the form that
the kernel itself has (``causal``, a window).
"""

from __future__ import annotations

import hashlib
import time
from importlib import metadata
from pathlib import Path

import torch

from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, Task
from attnctl_kernels.fa4.cubin import Cubin, read_cubin
from attnctl_kernels.fa4.launch.arguments import fake_inputs
from attnctl_kernels.fa4.launch.calls import KernelCall, record
from attnctl_kernels.fa4.launch.entry import interface, missing_packages
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.fa4.target import target

ARCH = "sm_90"
PACKAGES = ("flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels")


class Fa4Launcher:
    framework = "torch"
    compiles = True
    captures = True

    def warm_up(self) -> None:
        """flash-attn-4 and its compiler: 6 s, which the first candidate would wait for."""
        if not missing_packages():
            interface()

    def available(self, arch: str | None) -> str | None:
        """None if the kernels can run here; otherwise one sentence saying what is missing."""
        if missing := missing_packages():
            raise ModuleNotFoundError(name=missing[0])
        if arch not in (None, ARCH):
            return f"attnctl runs fa4 on {ARCH} only, not on {arch}"
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        major, minor = torch.cuda.get_device_capability()
        if major != 9:
            return f"fa4 is tuned on {ARCH}; this device is sm_{major}{minor}"
        return None

    def versions(self) -> dict[str, str]:
        """Installed versions, and the hash of the kernel package's sources."""
        installed = {each.name: each for each in metadata.distributions() if each.name in PACKAGES}
        versions = {name: each.version for name, each in sorted(installed.items())}
        return versions | FAMILY.sources()

    def compile(self, task: Task, candidate: Candidate) -> Compiled:
        """Compile with fake tensors into the on-disk cache; no GPU is touched."""
        from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - slow, and measuring needs it not

        if missing := missing_packages():
            raise ModuleNotFoundError(name=missing[0])
        if task.arch != target():
            raise CompileError(f"this process compiles for {target()}, not for {task.arch}")
        begun = time.perf_counter()
        with FakeTensorMode():
            recorded = record(task, candidate, fake_inputs(task))
        cubins = [_cubin(path) for each in recorded.recorders for path in each.object_files]
        known = [each for each in cubins if each is not None]
        return Compiled(
            seconds=time.perf_counter() - begun,
            binary=_identity(known, candidate) if known and len(known) == len(cubins) else None,
            resources=known[0].resources if known and cubins[0] else {},  # of the main kernel
            cached=not recorded.compiled,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> KernelCall:
        return record(task, candidate, inputs).call()


def _cubin(path: Path) -> Cubin | None:
    return read_cubin(path.read_bytes()) if path.is_file() else None


def _identity(cubins: list[Cubin], candidate: Candidate) -> str:
    """Of all kernels of a pass. The block lists are not part of the device code, and decide the time."""
    binaries = [each.binary for each in cubins]
    whole = binaries[0] if len(binaries) == 1 else hashlib.sha256("".join(binaries).encode()).hexdigest()
    return f"{whole}-{candidate.sparse_block}"


LAUNCHER = Fa4Launcher()
