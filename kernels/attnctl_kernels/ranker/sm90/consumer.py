"""The consumer warp groups: scores, softmax, output."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import warp, warpgroup

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.ring import Cursor
from attnctl_kernels.ranker.sm90.schedule import first_tile, locate, visits
from attnctl_kernels.ranker.sm90.traits import ForwardTraits

WARP_GROUP = 128  # threads
TURN_BARRIER = 1  # the first of the named barriers: one per consumer group


@cute.jit
def consume(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, buffers: Any, rings: Any, mBounds: cute.Tensor, scale: Float32,
    scale_log2: Float32, num_tiles: Int32, mma_qk: cute.TiledMma, mma_pv: cute.TiledMma,
):  # fmt: skip
    sQ, sD, sO, sK, sV = buffers
    q_ring, d_ring, o_ring, ring = rings
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
    own_score, row_max, row_sum, part, correction = (cute.make_rmem_tensor(2, Float32) for _ in range(5))
    own_row = group * ROWS + (thread // 32) * 16 + (thread % 32) // 4
    quad = thread % 4

    _start_turns(t, group)
    own_at, at = Cursor.start(1).of(group), Cursor.start(t.stages)
    index, step = first_tile()
    tile, bounds = locate(t, index, shape, mBounds)
    while index < num_tiles:
        here, (row, _, _) = tile, tile
        clipped, blocks, has_candidates = visits(t, row, shape[0], bounds)
        h_lo, h_hi, _, _ = clipped
        index += step
        tile, bounds = locate(t, index, shape, mBounds)  # of the next tile: they arrive while this one is computed
        O.fill(0.0)
        diagonal = thr_pv.partition_C(sQ[None, None, group]), thr_pv.partition_C(sD[None, None, group])
        q_ring.wait(own_at)
        if blocks > 0:
            # The first block: the only one that may be ragged.
            ring.wait(at)
            fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
            d_ring.wait(own_at)
            fragments.score_diagonal(diagonal, own_score, row_max, row_sum, row + own_row, clipped, quad)
            d_ring.release(own_at)
            warpgroup.wait_group(0)
            ring.release(at, blocks == 1, q_ring, own_at)
            at.advance()
            begin = h_lo + (blocks - 1) * t.tile_n
            if begin + t.tile_n > h_hi:
                fragments.hide_columns(S, h_hi - begin - 2 * quad)
            exceeds = fragments.weigh(S, P, row_max, part, scale_log2)
            fragments.settle(exceeds, S, P, O, row_max, row_sum, part, correction, scale_log2)
            for i in cutlass.range(blocks - 1, unroll=1):
                ring.wait(at)
                _take_turn(t, group)
                fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], True)
                fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
                _pass_turn(t, group)
                warpgroup.wait_group(0)
                ring.release(at, i == blocks - 2, q_ring, own_at)
                at.advance()
                exceeds = fragments.weigh(S, P, row_max, part, scale_log2)
                fragments.settle(exceeds, S, P, O, row_max, row_sum, part, correction, scale_log2)
            ring.wait(at)
            fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], True)
            warpgroup.wait_group(0)
            ring.release(at)
            at.advance()
        else:
            d_ring.wait(own_at)
            fragments.score_diagonal(diagonal, own_score, row_max, row_sum, row + own_row, clipped, quad)
            d_ring.release(own_at, True, q_ring, own_at)
        o_ring.wait(own_at)
        _finish(
            t, mLSE, shape, mma_pv, O, sO[None, None, group], own_score, row_max, row_sum, scale, scale_log2, here,
            clipped, has_candidates, own_row, thread,
        )  # fmt: skip
        o_ring.release(own_at)
        own_at.advance()


@cute.jit
def _finish(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, mma_pv: cute.TiledMma, O: cute.Tensor, sO: cute.Tensor,
    own_score: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, scale: Float32, scale_log2: Float32,
    tile: Any, bounds: Any, has_candidates: cutlass.Boolean, own_row: Int32, thread: Int32,
):  # fmt: skip
    """Add the values on the diagonal, divide by the row sums, and write the LSE and, to shared memory, the output."""
    row, head, batch = tile
    h_lo, h_hi, c_lo, c_hi = bounds
    inverse, own_weight = (cute.make_rmem_tensor(2, Float32) for _ in range(2))
    for r in cutlass.range_constexpr(2):
        here = row + own_row + 8 * r
        total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
        seen = (h_lo <= here and here < h_hi) or (c_lo <= here and here < c_hi)
        seen = seen and total != 0.0
        inverse[r] = cute.arch.rcp_approx(total) if seen else Float32(0.0)
        own_weight[r] = cute.math.exp2((own_score[r] - row_max[r]) * scale_log2, fastmath=True) * inverse[r]
        lse = row_max[r] * scale + cute.math.log(total, fastmath=True) if seen else -Float32.inf
        if thread % 4 == 0 and here < shape[0]:
            mLSE[batch, head, here] = lse
    if has_candidates:
        fragments.scale_and_add(O, inverse, own_weight, mma_pv.get_slice(thread).partition_C(sO))
        cute.arch.sync_warp()  # a warp writes the rows that it has read, though not each thread its own
    else:
        fragments.scale_and_clear(O, inverse)
    rO = cute.make_rmem_tensor(O.shape, t.dtype)
    fragments.round_to(O, rO)
    copy = cute.make_tiled_copy_C(
        cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), t.dtype), mma_pv
    ).get_slice(thread)
    cute.copy(copy, copy.retile(rO), copy.partition_D(sO))
    cute.arch.fence_view_async_shared()


def _start_turns(t: ForwardTraits, group: Int32) -> None:
    """Consumer groups issue their products in turns: one multiplies while another computes its softmax."""
    if t.turns and t.warp_groups > 1:
        _first_turn(group)


@cute.jit
def _first_turn(group: Int32):
    if group == 0:
        cute.arch.barrier_arrive(barrier_id=TURN_BARRIER, number_of_threads=2 * WARP_GROUP)


def _take_turn(t: ForwardTraits, group: Int32) -> None:
    if t.turns and t.warp_groups > 1:
        cute.arch.barrier(barrier_id=TURN_BARRIER + group, number_of_threads=2 * WARP_GROUP)


def _pass_turn(t: ForwardTraits, group: Int32) -> None:
    if t.turns and t.warp_groups > 1:
        following = (group + 1) % t.warp_groups
        cute.arch.barrier_arrive(barrier_id=TURN_BARRIER + following, number_of_threads=2 * WARP_GROUP)
