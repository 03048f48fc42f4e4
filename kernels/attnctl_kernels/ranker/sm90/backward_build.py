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


def backward_traits(head_dim: int, dtype: str, config: Config, *, capped: bool = False) -> BackwardTraits:
    tile = {name: int(config[name]) for name in ("tile_m", "tile_n", "stages")}
    return BackwardTraits(dtype=build.DTYPES[dtype], head_dim=head_dim, capped=capped, **tile)


def backward_object(traits: BackwardTraits, folder: Path) -> tuple[Path, bool]:
    return build.stored(traits, folder, compile_backward, SYMBOL)


def load(path: Path) -> build.Kernel:
    """``kernel(q, k, v, out, dout, lse, dq, dk, dv, sums, stats, bounds, softmax_scale, logit_cap)``, for all shapes.

    ``logit_cap`` is None where there is none.
    """
    return build.load(path, SYMBOL)


def compile_backward(traits: BackwardTraits) -> Any:
    batch_size, seqlen, num_heads_q, num_heads_kv, slots, tiles = (cute.sym_int() for _ in range(6))

    def tensor(num_heads: Any) -> Any:
        strides = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
        shape = (batch_size, seqlen, num_heads, traits.head_dim)
        return cute.runtime.make_fake_tensor(traits.dtype, shape, strides, assumed_align=16)

    def scratch(rows: Any, columns: int) -> Any:
        strides = (*(cute.sym_int64(divisibility=columns) for _ in range(2)), columns, 1)
        shape = (batch_size, num_heads_q, rows, columns)
        return cute.runtime.make_fake_tensor(Float32, shape, strides, assumed_align=16)

    lse_strides = (cute.sym_int64(), cute.sym_int64(), 1)
    return cute.compile(
        Backward(traits),
        *(tensor(heads) for heads in (num_heads_q, num_heads_kv, num_heads_kv, num_heads_q, num_heads_q)),
        cute.runtime.make_fake_tensor(Float32, (batch_size, num_heads_q, seqlen), lse_strides, assumed_align=4),
        *(tensor(heads) for heads in (num_heads_q, num_heads_kv, num_heads_kv)),
        scratch(slots, traits.head_dim),
        scratch(tiles, 2 * traits.tile_m),
        cute.runtime.make_fake_tensor(Int32, (batch_size, 4), (4, 1), assumed_align=4),
        Float32(1.0),
        Float32(1.0) if traits.capped else None,
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options="--enable-tvm-ffi",
    )
