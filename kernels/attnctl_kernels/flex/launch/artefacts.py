"""Compiled kernels on disk: what a compile worker leaves behind, and a measuring worker launches without a compiler.

An artefact is inductor's own launcher of one kernel, pickled as its compile processes hand it back: arguments, grid,
and the hash under which the cubin lies in Triton's cache. Offered to inductor before generated code asks for the
kernel, it saves Triton's front end, the assembler and a C compiler.
"""

from __future__ import annotations

import ast
import os
import pickle
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from torch._inductor.async_compile import CompiledTritonKernels
from torch._inductor.codecache import StaticAutotunerFuture, _load_triton_kernel_from_source
from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path, _worker_compile_triton
from torch._inductor.runtime.runtime_utils import triton_hash_to_path_key

from attnctl_kernels.contract import fingerprint
from attnctl_kernels.flex.launch.source import cache_folder, write_atomically


def sources(code: str) -> Iterator[tuple[str, str]]:
    """Name and source of each kernel that generated code compiles by `async_compile.triton(name, source)`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "triton":
            name, source = (ast.literal_eval(each) for each in node.args[:2])
            yield name, source


def compiled(name: str, source: str) -> Any:
    """The kernel as inductor's compile processes make it, also kept as an artefact.

    They assemble with the ptxas that PyTorch brings, and not with Triton's own, which is of another release.
    """
    kernel, _ = _worker_compile_triton(partial(_load_triton_kernel_from_source, name, source), {}, {})
    kernel.prepare_for_caching()
    if kernel.is_statically_launchable():
        write_atomically(_path(source), pickle.dumps(kernel))
    return kernel


def cubin(result: Any) -> Path:
    """Where Triton keeps the device code of one compiled kernel; beside it lie its metadata, as JSON."""
    folder = Path(os.environ["TRITON_CACHE_DIR"]) / triton_hash_to_path_key(result.kernel.hash)
    return next(folder.glob("*.cubin"), folder / "missing.cubin")


def offer(code: str) -> None:
    """Let generated code find the artefacts of its kernels; those that have none are compiled when it is loaded."""
    for _, source in sources(code):
        path = _path(source)
        if not path.is_file():
            continue
        kernel = pickle.loads(path.read_bytes())  # noqa: S301 - of the folder whose code is run next
        kernel.restore_after_unpickle(old_values=None)
        if all(cubin(result).is_file() for result in kernel.compile_results):
            CompiledTritonKernels.save(source, StaticAutotunerFuture(kernel))


def _path(source: str) -> Path:
    """By the source and what compiles it; inductor's own key hashes PyTorch's sources, and keeps that hash."""
    _set_triton_ptxas_path()
    key = {
        "source": CompiledTritonKernels.key(source),
        "triton": metadata.version("triton"),
        "ptxas": os.environ.get("TRITON_PTXAS_PATH"),
    }
    return cache_folder() / "kernels" / f"{fingerprint(key)}.pickle"
