"""Compile the kernels for sm_90a from descriptions of their arguments: no device and no real tensor is needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass
from cutlass import Float32, Int32, cute

from attnctl_kernels.contract import Config
from attnctl_kernels.ranker.sm90.forward import Forward
from attnctl_kernels.ranker.sm90.traits import ForwardTraits
from attnctl_kernels.ranker.sources import sources_hash

DTYPES = {"bfloat16": cutlass.BFloat16, "float16": cutlass.Float16}
SYMBOL = "ranker_forward"

Kernel = Callable[..., None]
"""On PyTorch's current stream, for all shapes:
``kernel(q, k, v, out, lse, bounds, order, softmax_scale, logit_cap, num_ctas)``.

``bounds`` is ``(batch_size, 4)``, or with ranges ``(batch_size, seqlen_q, 2)``; ``order`` is scratch of one int32 per
tile where the longest come first, otherwise None, as ``logit_cap`` is where there is none.
"""


def forward_traits(
    head_dim: int, dtype: str, config: Config, *, ranges: bool = False, capped: bool = False
) -> ForwardTraits:
    return ForwardTraits(
        dtype=DTYPES[dtype],
        head_dim=head_dim,
        tile_m=int(config["tile_m"]),
        tile_n=int(config["tile_n"]),
        stages=int(config["stages"]),
        turns=bool(config["turns"]),
        persistent=bool(config["persistent"]),
        longest_first=config["schedule"] == "longest_first",
        balanced=bool(config["balanced"]),
        ranges=ranges,
        capped=capped,
    )


def forward_object(traits: ForwardTraits, folder: Path) -> tuple[Path, bool]:
    return stored(traits, folder, compile_forward, SYMBOL)


def stored(traits: Any, folder: Path, compile_kernel: Callable[[Any], Any], symbol: str) -> tuple[Path, bool]:
    """A kernel's object file, compiled now unless it is there, and whether it was."""
    key = f"{traits}-{sources_hash()}-{metadata.version('nvidia-cutlass-dsl')}"
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.o"
    if path.is_file():
        return path, True
    folder.mkdir(parents=True, exist_ok=True)
    # A reader sees the whole file or none, whoever else compiles the same kernel.
    partial = folder / f".{path.stem}.{os.getpid()}.o"
    try:
        compile_kernel(traits).export_to_c(object_file_path=str(partial), function_name=symbol)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path, False


@cache
def load(path: Path, symbol: str = SYMBOL) -> Kernel:
    kernel: Kernel = getattr(cute.runtime.load_module(str(path), enable_tvm_ffi=True), symbol)
    return kernel


def compile_forward(traits: ForwardTraits) -> Any:
    batch_size, seqlen, num_heads_q, num_heads_kv = (cute.sym_int() for _ in range(4))
    keys = cute.sym_int() if traits.ranges else seqlen

    def tensor(length: Any, num_heads: Any) -> Any:
        strides = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
        shape = (batch_size, length, num_heads, traits.head_dim)
        return cute.runtime.make_fake_tensor(traits.dtype, shape, strides, assumed_align=16)

    def integers(shape: Any, strides: Any) -> Any:
        return cute.runtime.make_fake_tensor(Int32, shape, strides, assumed_align=4)

    lse_strides = (cute.sym_int64(), cute.sym_int64(), 1)
    lse = cute.runtime.make_fake_tensor(Float32, (batch_size, num_heads_q, seqlen), lse_strides, assumed_align=4)
    if traits.ranges:
        bounds = integers((batch_size, seqlen, 2), (cute.sym_int64(), 2, 1))
    else:
        bounds = integers((batch_size, 4), (4, 1))
    return cute.compile(
        Forward(traits),
        tensor(seqlen, num_heads_q),
        tensor(keys, num_heads_kv),
        tensor(keys, num_heads_kv),
        tensor(seqlen, num_heads_q),
        lse,
        bounds,
        integers((cute.sym_int(),), (1,)) if traits.longest_first else None,
        Float32(1.0),
        Float32(1.0) if traits.capped else None,
        Int32(1),
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options="--enable-tvm-ffi",
    )
