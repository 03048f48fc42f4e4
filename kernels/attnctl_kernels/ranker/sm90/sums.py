"""Sums of dQ in memory, fp32: pieces of 64 rows, each as the accumulators of a warp group hold it.

A thread has 4 elements of 16 columns: ``2 quad``, ``2 quad + 1``, and the same 8 further on. Those of a warp are 512
bytes, which are 8 rows, and all that it has of a piece follows each other: what a warp adds is one stretch of memory,
that TMA takes from shared memory to L2 with one instruction. Of 64 columns it is 4 KiB.
"""

from typing import Any

from cutlass import Float32, Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

from attnctl_kernels.ranker.backward_config import DQ_BUFFERS, FLOAT_BYTES
from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments

WARPS = 4


def floats(columns: int) -> int:
    """Of a piece with as many columns, that one warp has."""
    return ROWS * columns // WARPS


def by_row(x: cute.Tensor, piece_columns: int) -> cute.Tensor:
    """``(batch_size, num_heads_q, slots, width)``, of 16 columns each in the order of their threads."""
    batch_size, num_heads, slots, width = x.shape
    by_batch, by_head, _, _ = x.stride
    of_warp = floats(piece_columns)
    rows, by_rows = (8, 2, WARPS, slots // ROWS), (16, of_warp // 2, of_warp, ROWS * width)
    columns, by_columns = (16, piece_columns // 16, width // piece_columns), (1, 128, ROWS * piece_columns)
    layout = cute.make_layout((batch_size, num_heads, rows, columns), stride=(by_batch, by_head, by_rows, by_columns))
    return cute.make_tensor(x.iterator, layout)


def by_warp(x: cute.Tensor, piece_columns: int) -> cute.Tensor:
    """``(batch_size, num_heads_q, floats of a warp's piece, warps, column parts, row parts)``."""
    batch_size, num_heads, slots, width = x.shape
    by_batch, by_head, _, _ = x.stride
    of_warp = floats(piece_columns)
    layout = cute.make_layout(
        (batch_size, num_heads, of_warp, WARPS, width // piece_columns, slots // ROWS),
        stride=(by_batch, by_head, 1, of_warp, ROWS * piece_columns, ROWS * width),
    )
    return cute.make_tensor(x.iterator, layout)


def stage(dQ: cute.Tensor, staged: cute.Tensor, lane: Int32) -> None:
    """Write a warp's part of a piece to one of the buffers that it has for itself, when what was there has left."""
    cute.arch.cp_async_bulk_wait_group(DQ_BUFFERS - 1, read=True)
    cute.arch.sync_warp()
    lay_out(dQ, staged, lane)


def send(place: Int64, staged: cute.Tensor) -> None:
    """Add what is staged, and has been fenced, to the sums at an address. Of a warp it is always the same thread."""
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        _reduce(place, staged.iterator.toint(), cute.size(staged) * FLOAT_BYTES)
        cute.arch.cp_async_bulk_commit_group()


def lay_out(dQ: cute.Tensor, target: cute.Tensor, lane: Int32) -> None:
    dq = fragments.flat(dQ)
    groups = cute.size(dq) // 8  # of 16 columns
    for r in range(2):
        for j in range(groups):
            four = cute.make_rmem_tensor(4, Float32)
            for n, i in enumerate((0, 1, 4, 5)):
                four[n] = dq[8 * j + 2 * r + i]
            cute.autovec_copy(four, cute.local_tile(target, (4,), (32 * (groups * r + j) + lane,)))


@dsl_user_op
def _reduce(target: Int64, source: Int32, num_bytes: int, *, loc: Any = None, ip: Any = None) -> None:
    operands = [Int64(target).ir_value(loc=loc, ip=ip), Int32(source).ir_value(loc=loc, ip=ip)]
    llvm.inline_asm(
        None, operands, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], {num_bytes};",
        "l,r", has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip,
    )  # fmt: skip
