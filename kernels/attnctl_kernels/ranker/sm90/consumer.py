"""The consumer warp groups: scores, softmax, output."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import warpgroup

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.epilogue import finish
from attnctl_kernels.ranker.sm90.ring import Cursor
from attnctl_kernels.ranker.sm90.schedule import first_tile, locate, visits
from attnctl_kernels.ranker.sm90.traits import ForwardTraits
from attnctl_kernels.ranker.sm90.turns import WARP_GROUP, pass_turn, start_turns, take_turn


@cute.jit
def consume(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, keys: Int32, buffers: Any, rings: Any, work: Any, scales: Any,
    num_tiles: Int32, mma_qk: cute.TiledMma, mma_pv: cute.TiledMma,
):  # fmt: skip
    sQ, sD, sO, sK, sV = buffers
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // WARP_GROUP) - 1
    thread = thread % WARP_GROUP
    thr_qk, thr_pv = mma_qk.get_slice(thread), mma_pv.get_slice(thread)
    # One warp group's fragments are descriptors of shared memory, the same for each of its threads.
    tQ = mma_qk.make_fragment_A(mma_qk.get_slice(0).partition_A(sQ))[None, None, None, group]
    tK = mma_qk.make_fragment_B(mma_qk.get_slice(0).partition_B(sK))
    tV = mma_pv.make_fragment_B(mma_pv.get_slice(0).partition_B(fragments.transposed(sV)))
    S = cute.make_rmem_tensor(thr_qk.partition_shape_C((ROWS, t.tile_n)), Float32)
    P = mma_pv.make_fragment_A(thr_pv.partition_shape_A((ROWS, t.tile_n)))
    O = cute.make_rmem_tensor(thr_pv.partition_shape_C((ROWS, t.head_dim)), Float32)
    per_row = tuple(cute.make_rmem_tensor(2, Float32) for _ in range(5))

    start_turns(t, group)
    own_at, at = Cursor.start(1).of(group), Cursor.start(t.stages)
    index, step = first_tile()
    tile, bounds = locate(t, index, shape, work)
    while index < num_tiles:
        here, (row, _, _, end) = tile, tile
        seen = visits(t, row, end, keys, bounds)
        index += step
        tile, bounds = locate(t, index, shape, work)  # of the next tile: they arrive while this one is computed
        if cutlass.const_expr(t.balanced):
            if row + group * ROWS < end:
                at = _attend(
                    t, mLSE, shape, (sQ, sD, sO), rings, work, scales, (mma_qk, mma_pv), (tQ, tK, tV), (S, P, O),
                    per_row, here, seen, (own_at, at), group, thread,
                )  # fmt: skip
            else:
                _, blocks, _ = seen
                at = _sit_out(t, rings, blocks, own_at, at, group)
        else:
            at = _attend(
                t, mLSE, shape, (sQ, sD, sO), rings, work, scales, (mma_qk, mma_pv), (tQ, tK, tV), (S, P, O),
                per_row, here, seen, (own_at, at), group, thread,
            )  # fmt: skip
        own_at.advance()


@cute.jit
def _attend(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, buffers: Any, rings: Any, work: Any, scales: Any, mmas: Any,
    operands: Any, accumulators: Any, per_row: Any, tile: Any, seen: Any, cursors: Any, group: Int32, thread: Int32,
) -> Cursor:  # fmt: skip
    """This group's rows of a tile, and where the ring of keys and values stands behind it."""
    sQ, sD, sO = buffers
    q_ring, d_ring, o_ring, ring = rings
    scale, scale_log2, before_cap = scales
    (mma_qk, mma_pv), (tQ, tK, tV), (S, P, O) = mmas, operands, accumulators
    own_score, row_max, row_sum, part, correction = per_row
    clipped, blocks, has_candidates = seen
    own_at, at = cursors
    row, _, batch, _ = tile
    own_row = group * ROWS + (thread // 32) * 16 + (thread % 32) // 4
    first_row, quad = row + own_row, thread % 4
    k_lo, k_hi, _, _ = clipped
    thr_pv = mma_pv.get_slice(thread)
    diagonal = tuple(thr_pv.partition_C(x[None, None, group]) for x in (sQ, sD)) if t.diagonal else None
    O.fill(0.0)
    q_ring.wait(own_at)
    if blocks > 0:
        # The last block comes first. Where there is but one range, it is the only one that may be ragged.
        ring.wait(at)
        fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
        if cutlass.const_expr(t.diagonal):
            d_ring.wait(own_at)
            fragments.score_diagonal(diagonal, own_score, row_max, row_sum, first_row, clipped, quad, before_cap)
            d_ring.release(own_at)
        warpgroup.wait_group(0)
        ring.release(at, blocks == 1, q_ring, own_at)
        at.advance()
        begin = k_lo + (blocks - 1) * t.tile_n
        if cutlass.const_expr(t.capped):
            fragments.cap(S, before_cap)
        if cutlass.const_expr(t.ranges):
            _hide(t, S, begin, clipped, first_row, quad, batch, shape, work)
            fragments.start(row_max, row_sum)
            fragments.softmax(S, row_max, row_sum, correction, scale_log2)
            fragments.round_to(S, P)
        else:
            if begin + t.tile_n > k_hi:
                fragments.hide_columns(S, k_hi - begin - 2 * quad)
            fragments.weigh_and_settle(S, P, O, row_max, row_sum, part, correction, scale_log2)
        for i in cutlass.range(blocks - 1, unroll=1):
            ring.wait(at)
            take_turn(t, group)
            fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], True)
            fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
            pass_turn(t, group)
            warpgroup.wait_group(0)
            ring.release(at, i == blocks - 2, q_ring, own_at)
            at.advance()
            if cutlass.const_expr(t.capped):
                fragments.cap(S, before_cap)
            if cutlass.const_expr(t.ranges):
                _hide(t, S, begin - (i + 1) * t.tile_n, clipped, first_row, quad, batch, shape, work)
            fragments.weigh_and_settle(S, P, O, row_max, row_sum, part, correction, scale_log2)
        ring.wait(at)
        fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], True)
        warpgroup.wait_group(0)
        ring.release(at)
        at.advance()
    elif cutlass.const_expr(t.diagonal):
        d_ring.wait(own_at)
        fragments.score_diagonal(diagonal, own_score, row_max, row_sum, first_row, clipped, quad, before_cap)
        d_ring.release(own_at, True, q_ring, own_at)
    else:
        fragments.start(row_max, row_sum)
        q_ring.release(own_at)
    o_ring.wait(own_at)
    finish(
        t, mLSE, shape, mma_pv, O, sO[None, None, group], own_score, row_max, row_sum, scale, scale_log2, tile,
        clipped, has_candidates, own_row, thread,
    )  # fmt: skip
    o_ring.release(own_at)
    return at


@cute.jit
def _hide(
    t: ForwardTraits, S: cute.Tensor, begin: Int32, seen: Any, row: Int32, quad: Int32, batch: Int32, shape: Any,
    work: Any,
):  # fmt: skip
    """Hide what a row does not see of the block at ``begin``. A block that all rows see costs two comparisons."""
    _, k_hi, all_lo, all_hi = seen
    if begin < all_lo or begin + t.tile_n > all_hi:
        mRanges, _, _ = work
        first = begin + 2 * quad
        rows = [cutlass.min(row + 8 * r, shape[0] - 1) for r in range(2)]
        lows = [mRanges[batch, each, 0] - first for each in rows]
        highs = [cutlass.min(mRanges[batch, each, 1], k_hi) - first for each in rows]
        fragments.hide_outside(S, lows, highs)


@cute.jit
def _sit_out(t: ForwardTraits, rings: Any, blocks: Int32, own_at: Cursor, at: Cursor, group: Int32) -> Cursor:
    """Have no rows in a tile: let go of all that is loaded, and of every turn."""
    q_ring, d_ring, o_ring, ring = rings
    q_ring.wait(own_at)
    q_ring.release(own_at)
    if cutlass.const_expr(t.diagonal):
        d_ring.wait(own_at)
        d_ring.release(own_at)
    o_ring.wait(own_at)
    o_ring.release(own_at)
    if blocks > 0:
        for i in cutlass.range(blocks + 1, unroll=1):  # keys of the first, then both, then values of the last
            ring.wait(at)
            if i > 0 and i < blocks:
                take_turn(t, group)
                pass_turn(t, group)
            ring.release(at)
            at.advance()
    return at
