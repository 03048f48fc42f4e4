"""Programs that are lowered for CUDA, in memory and on disk. Worker processes only.

Tracing and lowering take about as long as XLA's compiler then does, and need no device: a compile worker does it, and
the process that measures finds the result. What XLA compiled lies beside it, in JAX's own cache on disk, so that each
process of the finals need not compile anew.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
from jax import export

if TYPE_CHECKING:
    from collections.abc import Callable

_MOSAIC = [export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]  # JAX keeps no promise about it over versions


def cache_folder() -> Path | None:
    """Where attnctl says; a program that says nothing keeps nothing."""
    named = os.environ.get("ATTNCTL_CACHE_DIR")
    return Path(named).absolute() / "jax" if named else None


def keep_compiled_programs() -> None:
    """Have XLA's results kept, also of what compiles in no time."""
    folder, update = cache_folder(), cast("Callable[..., None]", jax.config.update)
    if folder:
        update("jax_compilation_cache_dir", str(folder / "xla"))
        update("jax_persistent_cache_min_compile_time_secs", 0)


def lowered(program: Any, *shapes: Any) -> export.Exported:
    """``program``, a function of arrays with these shapes, lowered for CUDA with or without one."""
    return export.export(jax.jit(program, keep_unused=True), platforms=("cuda",), disabled_checks=_MOSAIC)(*shapes)


def code(program: export.Exported) -> str:
    """Without names of files and lines, which differ between programs that do the same."""
    shapes, _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    return str(jax.jit(program.call).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text())


def read(key: str) -> export.Exported | None:
    """None if it is not there, or cannot be read: it is lowered again then."""
    folder = cache_folder()
    try:
        return export.deserialize(bytearray((folder / key).read_bytes())) if folder else None
    except Exception:  # noqa: BLE001 - a file that is cut off fails in any way it likes
        return None


def write(key: str, program: export.Exported) -> None:
    """Does nothing without a folder, or without the package that writes it; a full disk is no candidate's fault."""
    folder = cache_folder()
    if not folder or not util.find_spec("flatbuffers"):
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{key}.{os.getpid()}"
        draft.write_bytes(program.serialize())
        draft.replace(folder / key)
