"""The consumer warp groups: scores, softmax, output."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import warpgroup

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.epilogue import close, finish
from attnctl_kernels.ranker.sm90.ring import Cursor, Ring
from attnctl_kernels.ranker.sm90.schedule import first_tile, plan
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
    tile, seen = plan(t, index, shape, keys, work, group)
    while index < num_tiles:
        index += step
        at, tile, seen = _attend(
            t, mLSE, shape, keys, (sQ, sD, sO), rings, work, scales, (mma_qk, mma_pv), (tQ, tK, tV), (S, P, O),
            per_row, tile, seen, index, (own_at, at), group, thread,
        )  # fmt: skip
        own_at.advance()


@cute.jit
def _attend(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, keys: Int32, buffers: Any, rings: Any, work: Any, scales: Any,
    mmas: Any, operands: Any, accumulators: Any, per_row: Any, tile: Any, seen: Any, following: Int32, cursors: Any,
    group: Int32, thread: Int32,
):  # fmt: skip
    """This group's rows of a tile; where the ring of keys and values stands behind it; and the plan of the next."""
    sQ, sD, sO = buffers
    q_ring, _, o_ring, ring = rings
    scale, scale_log2, before_cap = scales
    (mma_qk, mma_pv), (tQ, tK, tV), (S, P, O) = mmas, operands, accumulators
    _, row_max, row_sum, part, correction = per_row
    results = tuple(cute.make_rmem_tensor(2, Float32) for _ in range(3))
    (before, blocks, clipped), tile_blocks, has_candidates = seen  # those of this group
    own_at, at = cursors
    row, _, batch, _ = tile
    own_row = group * ROWS + (thread // 32) * 16 + (thread % 32) // 4
    first_row, quad = row + own_row, thread % 4
    k_lo, _, _, _ = clipped
    diagonal = tuple(x[None, None, group] for x in (sQ, sD)) if t.diagonal else None
    limits = _limits(t, work, first_row, quad, batch, shape, clipped)
    following_tile, following_seen = tile, seen
    at = _pass_by(t, ring, 0, before, tile_blocks, at, group)
    q_ring.wait(own_at)
    if blocks > 0:
        # The last block comes first. Where there is but one range, it is the only one that may be ragged.
        ring.wait(at)
        _let_pass(t, group, before > 0)
        fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
        _first_maxima(t, rings, own_at, False, diagonal, per_row, first_row, clipped, thread, before_cap)
        # The next tile is found, and its bounds arrive, while the tensor cores are busy.
        following_tile, following_seen = plan(t, following, shape, keys, work, group)
        warpgroup.wait_group(0)
        ring.release(at, blocks == 1, q_ring, own_at)
        at.advance()
        begin = k_lo + (tile_blocks - 1 - before) * t.tile_n
        fragments.cap(S, before_cap)
        _first_weights(t, accumulators, per_row, begin, clipped, limits, quad, scale_log2)
        for i in cutlass.range(blocks - 1, unroll=1):
            ring.wait(at)
            take_turn(t, group)
            fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], i > 0)
            fragments.multiply(mma_qk, S, tQ, tK[None, None, None, at.index], False)
            pass_turn(t, group)
            warpgroup.wait_group(0)
            ring.release(at, i == blocks - 2, q_ring, own_at)
            at.advance()
            fragments.cap(S, before_cap)
            _hide(t, S, begin - (i + 1) * t.tile_n, clipped, limits)
            fragments.weigh_and_settle(S, P, O, row_max, row_sum, part, correction, scale_log2)
        ring.wait(at)
        _let_pass(t, group, before + blocks < tile_blocks)
        fragments.multiply(mma_pv, O, P, tV[None, None, None, at.index], blocks > 1)
        close(t, per_row, results, scale, scale_log2, first_row, clipped)
        warpgroup.wait_group(0)
        ring.release(at)
        at.advance()
        at = _pass_by(t, ring, before + blocks + 1, tile_blocks + 1, tile_blocks, at, group)
    else:
        O.fill(0.0)
        _first_maxima(t, rings, own_at, True, diagonal, per_row, first_row, clipped, thread, before_cap)
        following_tile, following_seen = plan(t, following, shape, keys, work, group)
        if tile_blocks > 0:
            at = _pass_by(t, ring, before, tile_blocks + 1, tile_blocks, at, group)
        close(t, per_row, results, scale, scale_log2, first_row, clipped)
    o_ring.wait(own_at)
    finish(t, mLSE, shape[0], mma_pv, O, sO[None, None, group], results, tile, has_candidates, own_row, thread)
    o_ring.release(own_at)
    return at, following_tile, following_seen


@cute.jit
def _first_maxima(
    t: ForwardTraits, rings: Any, own_at: Cursor, done: cutlass.Constexpr, diagonal: Any, per_row: Any, row: Int32,
    bounds: Any, thread: Int32, before_cap: Float32 | None,
):  # fmt: skip
    """A maximum for each row to start from, and, where no block follows, the release of Q."""
    q_ring, d_ring, _, _ = rings
    own_score, row_max, row_sum, _, _ = per_row
    if cutlass.const_expr(t.diagonal):
        d_ring.wait(own_at)
        fragments.score_diagonal(diagonal, own_score, row_max, row_sum, row, bounds, thread, before_cap)
        # TMA, which fills the buffer next, must come after these reads: they are of another proxy.
        cute.arch.fence_view_async_shared()
        d_ring.release(own_at, done, q_ring, own_at)
    else:
        fragments.start(row_max, row_sum)
        if cutlass.const_expr(done):
            q_ring.release(own_at)


@cute.jit
def _first_weights(
    t: ForwardTraits, accumulators: Any, per_row: Any, begin: Int32, seen: Any, limits: Any, quad: Int32,
    scale_log2: Float32,
):  # fmt: skip
    S, P, O = accumulators
    _, row_max, row_sum, part, correction = per_row
    _, k_hi, _, _ = seen
    if cutlass.const_expr(t.ranges):
        _hide(t, S, begin, seen, limits)
        fragments.softmax(S, row_max, row_sum, correction, scale_log2)
        fragments.round_to(S, P)
    else:
        if begin + t.tile_n > k_hi:
            fragments.hide_from(S, [k_hi - begin - 2 * quad] * 2)
        fragments.weigh_and_settle(S, P, O, row_max, row_sum, part, correction, scale_log2)


def _limits(t: ForwardTraits, work: Any, row: Int32, quad: Int32, batch: Int32, shape: Any, seen: Any):
    """With ranges, those of a thread's two rows, counted from its first column."""
    if not t.ranges:
        return None
    mRanges, _, _ = work
    _, k_hi, _, _ = seen
    both = [cutlass.min(row + 8 * r, shape[0] - 1) for r in range(2)]
    lows = [mRanges[batch, each, 0] - 2 * quad for each in both]
    return lows, [cutlass.min(mRanges[batch, each, 1], k_hi) - 2 * quad for each in both]


def _hide(t: ForwardTraits, S: cute.Tensor, begin: Int32, seen: Any, limits: Any) -> None:
    """With ranges, hide what a row does not see of the block at ``begin``."""
    if t.ranges:
        _hide_outside(t, S, begin, seen, limits)


@cute.jit
def _hide_outside(t: ForwardTraits, S: cute.Tensor, begin: Int32, seen: Any, limits: Any):
    """A block that all rows see costs two comparisons."""
    _, _, all_lo, all_hi = seen
    lows, highs = limits
    if begin < all_lo:
        fragments.hide_before(S, [each - begin for each in lows])
    if begin + t.tile_n > all_hi:
        fragments.hide_from(S, [each - begin for each in highs])


def _pass_by(t: ForwardTraits, ring: Ring, first: Any, stop: Any, blocks: Int32, at: Cursor, group: Int32) -> Cursor:
    """Pass by the steps of a tile that are about blocks of other groups."""
    return _let_go(t, ring, Int32(first), Int32(stop), blocks, at, group) if t.groups_differ else at


@cute.jit
def _let_go(t: ForwardTraits, ring: Ring, first: Int32, stop: Int32, blocks: Int32, at: Cursor, group: Int32) -> Cursor:
    """Let go of some steps of a tile that visits ``blocks``: keys of the first, then both, then values of the last."""
    for i in cutlass.range(first, stop, unroll=1):
        ring.wait(at)
        _give_turn(t, group, i > 0 and i < blocks)
        ring.release(at)
        at.advance()
    return at


def _let_pass(t: ForwardTraits, group: Int32, turns: Any) -> None:
    """With ranges, a group's first or last step may be one in which others take turns."""
    if t.ranges:
        _give_turn(t, group, turns)


@cute.jit
def _give_turn(t: ForwardTraits, group: Int32, turns: cutlass.Boolean):
    if turns:
        take_turn(t, group)
        pass_turn(t, group)
