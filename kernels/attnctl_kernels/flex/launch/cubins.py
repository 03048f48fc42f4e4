"""The Triton kernels in generated code, compiled into Triton's cache without a GPU."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from typing import Any

from torch._inductor import config as inductor
from torch._inductor.codecache import PyCodeCache

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import CompileError, OutOfResources
from attnctl_kernels.fa4.cubin import read_cubin
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
    # Triton's own object, which has the device code; inductor's static launcher drops it.
    with inductor.patch({**settings(), "use_static_cuda_launcher": False}):
        for name, kernel in _kernels(code):
            for binary in _compile(kernel):
                cubin = read_cubin(binary.asm["cubin"])
                if cubin is None:
                    raise CompileError(f"Triton left no device code of {name}")
                digest.update(cubin.binary.encode())
                if name.startswith(ATTENTION):
                    resources = {**cubin.resources, "smem_bytes": int(binary.metadata.shared)}
    limit = ARCHES[arch].smem_bytes
    if resources.get("smem_bytes", 0) > limit:
        raise OutOfResources(f"the kernel needs {resources['smem_bytes']} bytes of shared memory, {arch} has {limit}")
    return digest.hexdigest(), resources


def _kernels(code: str) -> Iterator[tuple[str, Any]]:
    """Each `async_compile.triton(name, source)`, loaded as that call would."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "async_compile.triton":
            name, source = (ast.literal_eval(each) for each in node.args[:2])
            yield name, getattr(PyCodeCache.load(source), name)


def _compile(kernel: Any) -> list[Any]:
    try:
        kernel.precompile(warm_cache_only=True)
    except Exception as error:
        raise CompileError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    return [result.kernel for result in kernel.compile_results]
