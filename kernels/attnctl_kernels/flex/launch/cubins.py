"""The Triton kernels in generated code, compiled into Triton's cache without a GPU."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torch._inductor import config as inductor

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import CompileError, OutOfResources
from attnctl_kernels.fa4.cubin import read_cubin
from attnctl_kernels.flex.launch import artefacts
from attnctl_kernels.flex.launch.source import settings

ATTENTION = "triton_tem"  # how inductor's names of kernels from templates begin


def compile_kernels(code: str, arch: str) -> tuple[str, dict[str, int]]:
    """A hash of the device code, and what the attention kernel takes.

    Raises:
        CompileError: Triton or ptxas refuse a kernel.
        OutOfResources: the kernel needs more shared memory than ``arch`` has; no launch would tell it earlier.
    """
    digest = hashlib.sha256()
    resources: dict[str, int] = {}
    with inductor.patch(settings()):
        for name, source in artefacts.sources(code):
            for result in _compile(name, source):
                path = artefacts.cubin(result)
                cubin = read_cubin(path.read_bytes()) if path.is_file() else None
                if cubin is None:
                    raise CompileError(f"Triton left no device code of {name}")
                digest.update(cubin.binary.encode())
                if name.startswith(ATTENTION):
                    shared = json.loads(path.with_suffix(".json").read_text())["shared"]
                    resources = {**cubin.resources, "smem_bytes": int(shared)}
    limit = ARCHES[arch].smem_bytes
    if resources.get("smem_bytes", 0) > limit:
        raise OutOfResources(f"the kernel needs {resources['smem_bytes']} bytes of shared memory, {arch} has {limit}")
    return digest.hexdigest(), resources


def _compile(name: str, source: str) -> list[Any]:
    try:
        compiled: list[Any] = artefacts.compiled(name, source).compile_results
    except Exception as error:
        raise CompileError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    return compiled
