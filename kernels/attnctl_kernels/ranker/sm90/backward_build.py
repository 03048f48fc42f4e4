"""Compile the backward kernels for sm_90a from descriptions of their arguments, as ``build`` does the forward one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnctl_kernels.contract import Config
from attnctl_kernels.ranker.sm90 import build

# After `build`, which names the arch before anything imports cutlass.
from cutlass import Float32, Int32, cute  # isort: skip

from attnctl_kernels.ranker.sm90.backward import Backward
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits

SYMBOL = "ranker_backward"


def backward_traits(
    head_dim: int, dtype: str, config: Config, *, ranges: bool = False, capped: bool = False, lse_gradient: bool = False
) -> BackwardTraits:
    tile = {name: int(config[name]) for name in ("tile_m", "tile_n", "stages")}
    form = {"ranges": ranges, "capped": capped, "lse_gradient": lse_gradient}
    return BackwardTraits(dtype=build.DTYPES[dtype], head_dim=head_dim, **form, **tile)


def backward_object(traits: BackwardTraits, folder: Path) -> tuple[Path, bool]:
    return build.stored(traits, folder, compile_backward, SYMBOL)


def load(path: Path) -> build.Kernel:
    """``kernel(q, k, v, out, dout, lse, dlse, dq, dk, dv, sums, stats, bounds, spans, softmax_scale, logit_cap)``.

    For all shapes. ``bounds`` is ``(batch_size, 4)``, or with ranges ``(batch_size, seqlen_q, 2)``; ``spans`` is then
    scratch, ``(batch_size, seqlen_k, 2)``, otherwise None, as ``dlse`` and ``logit_cap`` are where there is none.
    """
    return build.load(path, SYMBOL)


def compile_backward(traits: BackwardTraits) -> Any:
    batch_size, seqlen, num_heads_q, num_heads_kv, slots, tiles = (cute.sym_int() for _ in range(6))
    keys = cute.sym_int() if traits.ranges else seqlen
    queries, pairs = (seqlen, num_heads_q), (keys, num_heads_kv)

    def tensor(length: Any, num_heads: Any) -> Any:
        strides = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
        shape = (batch_size, length, num_heads, traits.head_dim)
        return cute.runtime.make_fake_tensor(traits.dtype, shape, strides, assumed_align=16)

    def scratch(rows: Any, columns: int) -> Any:
        strides = (*(cute.sym_int64(divisibility=columns) for _ in range(2)), columns, 1)
        shape = (batch_size, num_heads_q, rows, columns)
        return cute.runtime.make_fake_tensor(Float32, shape, strides, assumed_align=16)

    def integers(shape: Any, strides: Any) -> Any:
        return cute.runtime.make_fake_tensor(Int32, shape, strides, assumed_align=4)

    bounds, spans = integers((batch_size, 4), (4, 1)), None
    if traits.ranges:
        bounds = integers((batch_size, seqlen, 2), (cute.sym_int64(), 2, 1))
        spans = integers((batch_size, keys, 2), (cute.sym_int64(), 2, 1))

    def statistics() -> Any:
        strides = (cute.sym_int64(), cute.sym_int64(), 1)
        return cute.runtime.make_fake_tensor(Float32, (batch_size, num_heads_q, seqlen), strides, assumed_align=4)

    return cute.compile(
        Backward(traits),
        *(tensor(*each) for each in (queries, pairs, pairs, queries, queries)),
        statistics(),
        statistics() if traits.lse_gradient else None,
        *(tensor(*each) for each in (queries, pairs, pairs)),
        scratch(slots, traits.width),
        scratch(tiles, 2 * traits.tile_m),
        bounds,
        spans,
        Float32(1.0),
        Float32(1.0) if traits.capped else None,
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options="--enable-tvm-ffi",
    )
