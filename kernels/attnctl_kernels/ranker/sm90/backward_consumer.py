"""The consumer warp groups of the backward kernel: each has 64 keys, and dK and dV of them in registers.

Scores are taken transposed, ``S = K Q^T``: a warp group's weights are then an operand of dV and dK as they are, in
registers. Only dS goes through shared memory, to meet the keys of all groups in dQ.

Above head_dim 128 two warp groups have the same 64 keys, and each half of the columns of dK and dV. Both compute all
of the weights, and exchange nothing.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import warp, warpgroup

from attnctl_kernels.ranker.backward_config import SCORE_BUFFERS
from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments, spans, sums, tma, walk
from attnctl_kernels.ranker.sm90.backward_producer import box_at
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits
from attnctl_kernels.ranker.sm90.consumer import WARP_GROUP
from attnctl_kernels.ranker.sm90.ring import Cursor

ALL_GROUPS = 1  # named barriers: of all consumers, and behind it one per part of the keys
SAME_KEYS = 2


@cute.jit
def consume(
    t: BackwardTraits, mSums: cute.Tensor, buffers: Any, rings: Any, stores: Any, block: Any, rows: Any, h_hi: Int32,
    group_size: Int32, scales: Any, mmas: Any, mSpans: cute.Tensor | None, seqlen: Int32,
):  # fmt: skip
    sQ, sdO, sStats, (sK, sKw), sV, sdS, sdQ = buffers
    kv_ring, ring, do_ring = rings
    first_key, kv_head, batch = block
    mma_s, mma_dkv, mma_dq = mmas
    scale, scale_log2, before_cap = scales
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // WARP_GROUP) - 1
    keys, columns = (group, 0) if t.column_parts == 1 else (group // t.column_parts, group % t.column_parts)
    thread = thread % WARP_GROUP
    warp_index, quad = cute.arch.make_warp_uniform(thread // 32), thread % 4
    own_row = (thread // 32) * 16 + (thread % 32) // 4

    tQ, tdO = (mma_s.make_fragment_B(mma_s.get_slice(0).partition_B(x)) for x in (sQ, sdO))
    tQt, tdOt = (
        mma_dkv.make_fragment_B(mma_dkv.get_slice(0).partition_B(columns_of(t, fragments.transposed(x), columns)))
        for x in (sQ, sdO)
    )
    tdS = mma_dq.make_fragment_A(mma_dq.get_slice(0).partition_A(fragments.transposed(sdS)))

    score_shape = mma_s.get_slice(thread).partition_shape_C((ROWS, ROWS))
    S, dP = (cute.make_rmem_tensor(score_shape, Float32) for _ in range(2))
    dQ = cute.make_rmem_tensor(mma_dq.get_slice(thread).partition_shape_C(t.piece), Float32)
    thr_dkv = mma_dkv.get_slice(thread)
    P, dS = (mma_dkv.make_fragment_A(thr_dkv.partition_shape_A((ROWS, ROWS))) for _ in range(2))
    dK, dV = (cute.make_rmem_tensor(thr_dkv.partition_shape_C(t.gradient), Float32) for _ in range(2))
    dK.fill(0.0)
    dV.fill(0.0)
    copy_dS = _stmatrix(t, mma_s).get_slice(thread)

    rows, first_tile, seen_by = visits(t, mSpans, block, rows, (h_hi, seqlen), keys, own_row, quad)
    # What keys behind the history sum up is not stored, but dS meets them in dQ: theirs is cleared. They are zeros in
    # shared memory, of which weights may be infinite, or copies of the last one.
    seen = tuple(first_key + keys * ROWS + own_row + 8 * r < h_hi for r in range(2))
    masks = tuple(cutlass.select_(each, Int32(-1), Int32(0)) for each in seen)
    _, num_tiles = walk.count_tiles(t, rows)
    stage, buffer = Cursor.start(t.stages), Cursor.start(SCORE_BUFFERS)
    do_stage = Cursor.start(t.do_stages)
    lse, delta = (cute.make_rmem_tensor((2, ROWS // 8), Float32) for _ in range(2))
    staged, unsent = sdQ[None, warp_index, group, None], Int64(0)
    kv_ring.wait(Cursor.start(1))
    tK, tV = (operand_of_keys(t, mma_s, x[None, None, keys], thread) for x in (sK, sV))
    ring.wait(stage)
    fragments.multiply(mma_s, S, tK, tQ[None, None, None, 0, stage.index], False)
    warpgroup.wait_group(0)
    # A step begins with S there, and ends with that of the next one: behind the last there is one that is none.
    for member in cutlass.range(group_size, unroll=1):
        pieces = sums.by_warp(mSums, t.piece[1])[batch, kv_head * group_size + member, None, warp_index, None, None]
        for tile in cutlass.range(num_tiles, unroll=1):
            flight, following = fragments.Flight(), stage.following()
            stats = sStats[None, stage.index]
            do_buffer = stage.index if do_ring is None else do_stage.index
            if cutlass.const_expr(do_ring is not None):
                do_ring.wait(do_stage)
            for part in cutlass.range_constexpr(t.row_parts):
                at, column = (None, None, None, part, stage.index), part * ROWS + 2 * quad
                do_at = None, None, None, part, do_buffer
                if cutlass.const_expr(part > 0):
                    scored = flight.multiply(mma_s, S, tK, tQ[at], False)
                differentiated = flight.multiply(mma_s, dP, tV, tdO[do_at], False)
                load_stats(lse, stats, column)
                if cutlass.const_expr(part > 0):
                    flight.wait(scored)
                here = (first_tile + tile) * t.tile_m + part * ROWS, seen_by
                weigh(t, S, P, lse, scale_log2, before_cap, here)
                load_stats(delta, stats, t.tile_m + column)
                weighed = flight.multiply(mma_dkv, dV, P, tdOt[do_at], True)
                flight.wait(differentiated)
                differentiate(S, dP, delta)
                fragments.round_to(dP, dS)
                clear_unseen(t, dS, masks)
                summed = flight.multiply(mma_dkv, dK, dS, tQt[at], True)
                own_dS = sdS[None, None, keys, part, buffer.index]
                copy_first(columns, copy_dS, dS, own_dS)
            if cutlass.const_expr(do_ring is not None):
                flight.wait(weighed)
                do_ring.release(do_stage)
            cute.arch.fence_view_async_shared()  # of dS, and of dQ that was staged in the step before
            # With two buffers one barrier a step is enough: whoever writes this buffer again has passed the next
            # barrier, where every group arrives with its products of this step done.
            cute.arch.barrier(barrier_id=ALL_GROUPS, number_of_threads=WARP_GROUP * t.warp_groups)
            for n in cutlass.range_constexpr(t.pieces):
                multiplied = multiply_dq(t, flight, mma_dq, dQ, tdS, sKw, group, n, buffer.index)
                if cutlass.const_expr(n > 0):
                    cute.arch.fence_view_async_shared()
                if unsent != 0:
                    sums.send(unsent, staged[None, 1 - staged_in(t, n, buffer.index)])
                if cutlass.const_expr(n == t.pieces - 1):
                    flight.wait(summed)
                    ring.release(stage)
                    # Multiplied while dQ is staged.
                    ring.wait(following)
                    scored = flight.multiply(mma_s, S, tK, tQ[None, None, None, 0, following.index], False)
                flight.wait(multiplied)
                sums.stage(dQ, staged[None, staged_in(t, n, buffer.index)], thread % 32)
                row_part, column_part = t.place(group, n)
                unsent = pieces[None, column_part, (first_tile + tile) * t.row_parts + row_part].iterator.toint()
            flight.wait(scored)
            stage.advance()
            do_stage.advance()
            buffer.advance()
    cute.arch.fence_view_async_shared()
    send_last(unsent, staged[None, 1 - staged_in(t, 0, buffer.index)])
    cute.arch.cp_async_bulk_wait_group(0)

    # All products with the keys are done, whose place dK takes.
    cute.arch.barrier(barrier_id=ALL_GROUPS, number_of_threads=WARP_GROUP * t.warp_groups)
    multiply_by(dK, scale)
    store(t, mma_dkv, (dK, dV), (sK, sV), stores, block, h_hi, (keys, columns), thread)


def visits(
    t: BackwardTraits, mSpans: cute.Tensor | None, block: Any, rows: Any, lengths: Any, keys: Int32, own_row: Int32,
    quad: Int32,
) -> Any:  # fmt: skip
    """The rows that the block walks; the tile of scratch that is the first; with ranges, what its keys are seen by."""
    if not t.ranges:
        return rows, Int32(0), None
    first_key, _, batch = block
    cute.arch.griddepcontrol_wait()  # for spans
    rows = spans.rows_of_block(t, mSpans, batch, first_key, *lengths)
    by_all, limits = spans.seen_by(mSpans, (first_key + keys * ROWS, batch), own_row, quad, *lengths)
    # The same in every thread, which ptxas has to know: products are in flight where a step asks.
    return rows, rows[0] // t.tile_m, (tuple(cute.arch.make_warp_uniform(each) for each in by_all), limits)


@cute.jit
def copy_first(columns: Any, copy: Any, x: cute.Tensor, target: cute.Tensor):
    """By the first of the warp groups that have the same keys: the others have the same."""
    if columns == 0:
        cute.copy(copy, copy.retile(x), copy.partition_D(target))


@cute.jit
def send_last(unsent: Int64, staged: cute.Tensor):
    """Nothing where no row was walked."""
    if unsent != 0:
        sums.send(unsent, staged)


@cute.jit
def store(
    t: BackwardTraits, mma: cute.TiledMma, gradients: Any, buffers: Any, stores: Any, block: Any, h_hi: Int32,
    own: Any, thread: Int32,
):  # fmt: skip
    """A warp group's gradients, in 16 bits, to those of its keys that are history."""
    first_key, kv_head, batch = block
    keys, columns = own
    copy = _stmatrix(t, mma).get_slice(thread)
    for gradient, target in zip(gradients, buffers, strict=True):
        rounded = cute.make_rmem_tensor(gradient.shape, t.dtype)
        fragments.round_to(gradient, rounded)
        part = target[None, None, keys]
        if cutlass.const_expr(t.column_parts > 1):
            part = cute.local_tile(part, t.gradient, (0, columns))
        cute.copy(copy, copy.retile(rounded), copy.partition_D(part))
    cute.arch.fence_view_async_shared()
    cute.arch.barrier(barrier_id=SAME_KEYS + keys, number_of_threads=WARP_GROUP * t.column_parts)
    begin = first_key + keys * ROWS
    if thread < 32 and columns == 0 and begin < h_hi:
        at = box_at(begin, h_hi, kv_head, batch)
        for (atom, g), source in zip(stores, buffers, strict=True):
            tma.store(atom, source[None, None, keys], g, at, t.part)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)


def columns_of(t: BackwardTraits, x: cute.Tensor, columns: Any) -> cute.Tensor:
    """Of a transposed part, those of a warp group's gradients."""
    if t.column_parts == 1:
        return x
    _, width = t.gradient
    return cute.local_tile(x, (width, ROWS), (columns, 0, *(None,) * (cute.rank(x) - 2)))


def operand_of_keys(t: BackwardTraits, mma: cute.TiledMma, x: cute.Tensor, thread: Int32) -> cute.Tensor:
    """A warp group's keys or values: they are the same in every step, and in registers where those have room."""
    if not t.keys_in_registers:
        return mma.make_fragment_A(mma.get_slice(0).partition_A(x))
    operand = mma.make_fragment_A(mma.get_slice(thread).partition_shape_A(t.part))
    atom = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transpose=False, num_matrices=4), t.dtype)
    copy = cute.make_tiled_copy_A(atom, mma).get_slice(thread)
    cute.copy(copy, copy.partition_S(x), copy.retile(operand))
    return operand


def load_stats(target: cute.Tensor, stats: cute.Tensor, first: Int32) -> None:
    """LSE or delta of the columns that a thread has of a transposed score fragment: pairs, 8 apart."""
    part = cute.domain_offset((first,), stats)
    cute.autovec_copy(cute.make_tensor(part.iterator, cute.make_layout((2, ROWS // 8), stride=(1, 8))), target)


def weigh(
    t: BackwardTraits, S: cute.Tensor, P: cute.Tensor, lse: cute.Tensor, scale_log2: Float32,
    before_cap: Float32 | None, here: Any,
) -> None:  # fmt: skip
    """Weights ``P`` from scores. ``S`` becomes what gradients are multiplied by: weights, times the slope of a cap."""
    fragments.cap(S, before_cap)
    s, weights = fragments.flat(S), cute.make_rmem_tensor(cute.size(S), Float32)
    for i in range(cute.size(s)):
        weights[i] = cute.math.exp2(s[i] * scale_log2 - lse[i % 2, i // 4], fastmath=True)
    if t.ranges:
        spans.hide(weights, *here)
    for i in range(cute.size(s)):
        s[i] = weights[i] if before_cap is None else weights[i] * (1.0 - s[i] * s[i])
    fragments.round_to(weights, P)


def multiply_by(x: cute.Tensor, factor: Float32) -> None:
    flat = fragments.flat(x)
    for i in range(cute.size(flat)):
        flat[i] = flat[i] * factor


def differentiate(S: cute.Tensor, dP: cute.Tensor, delta: cute.Tensor) -> None:
    """The gradient of the scores, dS, in place of dP."""
    s, dp = fragments.flat(S), fragments.flat(dP)
    for i in range(cute.size(s)):
        dp[i] = s[i] * (dp[i] - delta[i % 2, i // 4])


def clear_unseen(t: BackwardTraits, dS: cute.Tensor, masks: Any) -> None:
    """Of keys behind the history; with ranges their weights are hidden like others'."""
    if t.ranges:
        return
    pairs = cute.recast_tensor(fragments.flat(dS), Int32)
    for i in range(cute.size(pairs)):
        pairs[i] = pairs[i] & masks[i % 2]


def staged_in(t: BackwardTraits, n: int, buffer: Int32) -> Any:
    """The buffer of a step's ``n``-th piece, which is never that of the piece before."""
    if t.pieces % 2 == 0:
        return n % 2
    return buffer if n % 2 == 0 else 1 - buffer


def multiply_dq(
    t: BackwardTraits, flight: fragments.Flight, mma: cute.TiledMma, dQ: cute.Tensor, tdS: cute.Tensor,
    sKw: cute.Tensor, group: Int32, n: int, buffer: Int32,
) -> int:  # fmt: skip
    """A warp group's ``n``-th piece of dQ, from dS and the keys of all groups."""
    row_part, column_part = t.place(group, n)
    _, width = t.piece
    columns = cute.local_tile(fragments.transposed(sKw), (width, ROWS), (column_part, 0, None))
    tK = mma.make_fragment_B(mma.get_slice(0).partition_B(columns))
    for part in range(t.key_parts):
        a, b = tdS[None, None, None, part, row_part, buffer], tK[None, None, None, part]
        last = flight.multiply(mma, dQ, a, b, part > 0)
    return last


def _stmatrix(t: BackwardTraits, mma: cute.TiledMma) -> cute.TiledCopy:
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), t.dtype)
    return cute.make_tiled_copy_C(atom, mma)
