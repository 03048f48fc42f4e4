"""Sums of dQ in memory, fp32: squares of 64 x 64, each as the accumulators of a warp group hold it.

A thread has 4 elements of 16 columns: ``2 quad``, ``2 quad + 1``, and the same 8 further on. Those of a warp are 512
bytes, which are 8 rows, and the 8 times 512 bytes that it has of a square follow each other: what a warp adds is one
piece of memory, that TMA takes from shared memory to L2 with one instruction.
"""

from typing import Any

from cutlass import Float32, Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

from attnctl_kernels.ranker.backward_config import DQ_BUFFERS, FLOAT_BYTES
from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments

WARPS = 4
PIECE = ROWS * ROWS // WARPS  # floats


def by_row(x: cute.Tensor) -> cute.Tensor:
    """``(batch_size, num_heads_q, slots, width)``, of 16 columns each in the order of their threads."""
    batch_size, num_heads, slots, width = x.shape
    by_batch, by_head, _, _ = x.stride
    rows, by_rows = (8, 2, WARPS, slots // ROWS), (16, PIECE // 2, PIECE, ROWS * width)
    columns, by_columns = (16, ROWS // 16, width // ROWS), (1, 128, ROWS * ROWS)
    layout = cute.make_layout((batch_size, num_heads, rows, columns), stride=(by_batch, by_head, by_rows, by_columns))
    return cute.make_tensor(x.iterator, layout)


def by_warp(x: cute.Tensor) -> cute.Tensor:
    """``(batch_size, num_heads_q, floats of a piece, warps, column parts, row parts)``."""
    batch_size, num_heads, slots, width = x.shape
    by_batch, by_head, _, _ = x.stride
    layout = cute.make_layout(
        (batch_size, num_heads, PIECE, WARPS, width // ROWS, slots // ROWS),
        stride=(by_batch, by_head, 1, PIECE, ROWS * ROWS, ROWS * width),
    )
    return cute.make_tensor(x.iterator, layout)


def stage(dQ: cute.Tensor, staged: cute.Tensor, lane: Int32) -> None:
    """Write a warp's part of a square to one of the buffers that it has for itself, when what was there has left."""
    cute.arch.cp_async_bulk_wait_group(DQ_BUFFERS - 1, read=True)
    cute.arch.sync_warp()
    lay_out(dQ, staged, lane)


def send(piece: Int64, staged: cute.Tensor) -> None:
    """Add what is staged, and has been fenced, to the sums at an address. Of a warp it is always the same thread."""
    cute.arch.sync_warp()
    with cute.arch.elect_one():
        _reduce(piece, staged.iterator.toint(), PIECE * FLOAT_BYTES)
        cute.arch.cp_async_bulk_commit_group()


def lay_out(dQ: cute.Tensor, target: cute.Tensor, lane: Int32) -> None:
    dq = fragments.flat(dQ)
    for r in range(2):
        for j in range(0, ROWS // 8, 2):
            four = cute.make_rmem_tensor(4, Float32)
            for n, i in enumerate((0, 1, 4, 5)):
                four[n] = dq[4 * j + 2 * r + i]
            cute.autovec_copy(four, cute.local_tile(target, (4,), (32 * (4 * r + j // 2) + lane,)))


@dsl_user_op
def _reduce(target: Int64, source: Int32, num_bytes: int, *, loc: Any = None, ip: Any = None) -> None:
    operands = [Int64(target).ir_value(loc=loc, ip=ip), Int32(source).ir_value(loc=loc, ip=ip)]
    llvm.inline_asm(
        None, operands, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], {num_bytes};",
        "l,r", has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip,
    )  # fmt: skip
