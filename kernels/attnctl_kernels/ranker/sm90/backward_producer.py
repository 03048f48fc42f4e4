"""The warp that loads what the backward kernel multiplies."""

from typing import Any

import cutlass
from cutlass import Int32, cute

from attnctl_kernels.ranker.backward_config import FLOAT_BYTES
from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import spans, tma, walk
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits
from attnctl_kernels.ranker.sm90.ring import Cursor


@cute.jit
def load(
    t: BackwardTraits, atoms: Any, tensors: Any, buffers: Any, rings: Any, block: Any, rows: Any, h_hi: Int32,
    group_size: Int32, mSpans: cute.Tensor | None,
):  # fmt: skip
    """The block's keys and values; then, of each query head that shares them, rows in the order of the walk."""
    tma_q, tma_do, tma_stats, tma_k, tma_v = atoms
    gQ, gdO, gStats, gK, gV = tensors
    sQ, sdO, sStats, sK, sV = buffers
    kv_ring, ring, do_ring = rings
    first_key, kv_head, batch = block

    barrier = kv_ring.acquire(Cursor.start(1), 2 * t.num_bytes(t.tile_n))
    for part in cutlass.range_constexpr(t.key_parts):
        at = box_at(first_key + part * ROWS, h_hi, kv_head, batch)
        tma.load(tma_k, gK, at, sK[None, None, part], t.part, barrier)
        tma.load(tma_v, gV, at, sV[None, None, part], t.part, barrier)

    cute.arch.griddepcontrol_wait()  # for LSE and delta, and for spans
    first_tile = Int32(0)
    if cutlass.const_expr(t.ranges):
        rows = spans.rows_of_block(t, mSpans, batch, first_key, h_hi, gQ.shape[2] - 1)
        first_tile = rows[0] // t.tile_m
    _, num_tiles = walk.count_tiles(t, rows)
    stage, do_stage = Cursor.start(t.stages), Cursor.start(t.do_stages)
    num_bytes = t.num_bytes(t.tile_m) + 2 * t.tile_m * FLOAT_BYTES
    if cutlass.const_expr(do_ring is None):
        num_bytes += t.num_bytes(t.tile_m)
    for member in cutlass.range(group_size, unroll=1):
        head = kv_head * group_size + member
        for tile in cutlass.range(num_tiles, unroll=1):
            begin, end = walk.row_tile(t, rows, tile)
            barrier = ring.acquire(stage, num_bytes)
            boxes = [box_at(begin + part * ROWS, end, head, batch) for part in range(t.row_parts)]
            for part, at in enumerate(boxes):
                tma.load(tma_q, gQ, at, sQ[None, None, part, stage.index], t.part, barrier)
            tma.load_line(tma_stats, gStats[None, first_tile + tile, head, batch], sStats[None, stage.index], barrier)
            do_buffer = stage.index
            if cutlass.const_expr(do_ring is not None):
                do_buffer, barrier = do_stage.index, do_ring.acquire(do_stage, t.num_bytes(t.tile_m))
            for part, at in enumerate(boxes):
                tma.load(tma_do, gdO, at, sdO[None, None, part, do_buffer], t.part, barrier)
            stage.advance()
            do_stage.advance()
    ring.acquire(stage, 0)  # a step that is none: consumers begin one ahead


def box_at(begin: Int32, limit: Int32, head: Int32, batch: Int32) -> tuple[Int32, ...]:
    """Where the 64 rows from ``begin`` lie in ``tma.ending_anywhere``: those from ``limit`` on are zeros.

    If these are all, the first is a copy of the row before ``limit``: for a box without a single row TMA goes to the
    address in the descriptor, which need not be mapped.
    """
    end = cutlass.min(begin + ROWS, limit)
    return cutlass.min(begin + ROWS - end, ROWS - 1), end, head, batch
