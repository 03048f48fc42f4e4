"""What the backward pass computes row by row, before and after its products.

Before: delta, LSE in powers of 2, and everything that a candidate's own key contributes, which needs no product.
That is the first value of the sums of dQ, and all of dK and dV of a candidate, whose key nobody else sees. After: sums
of dQ to dQ. A row is read by ``width / 8`` threads, each with eight neighbouring columns of sums of dQ; where that is
no power of 2, others stand idle beside them.
"""

from __future__ import annotations

import math
from typing import Any

import cutlass
from cutlass import Float32, Int32, cute

from attnctl_kernels.ranker.sm90 import fragments, spans, sums, walk
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits

THREADS = 128
COLUMNS = 8  # of a thread: 16 bytes


def rows_per_block(t: BackwardTraits) -> int:
    return THREADS // lanes_per_row(t)


def lanes_per_row(t: BackwardTraits) -> int:
    return 1 << (t.width // COLUMNS - 1).bit_length()


@cute.jit
def prepare(
    t: BackwardTraits, mQ: cute.Tensor, mK: cute.Tensor, mV: cute.Tensor, mO: cute.Tensor, mdO: cute.Tensor,
    mLSE: cute.Tensor, mdLSE: cute.Tensor | None, mdK: cute.Tensor, mdV: cute.Tensor, mSums: cute.Tensor,
    mStats: cute.Tensor, mBounds: cute.Tensor, scales: Any, num_chunks: Int32, grouped: cutlass.Constexpr,
):  # fmt: skip
    """A row of one key head, and of the query heads that share it: a loop over those takes twice the registers."""
    num_heads, seqlen = mK.shape[2], mK.shape[1]
    block, _, _ = cute.arch.block_idx()
    row, head, batch, lane = _place(t, block, num_chunks, num_heads)
    clipped = walk.clip(walk.bounds_of(mBounds, batch), seqlen)
    rows = walk.ranges(clipped)
    h_lo, h_hi, _, _ = clipped
    slot = walk.slot_of(t, rows, row)
    history = h_lo <= row and row < h_hi
    candidate = slot >= 0 and not history

    k, v = (cute.make_rmem_tensor(COLUMNS, t.dtype) for _ in range(2))
    dk, dv = (cute.make_rmem_tensor(COLUMNS, Float32) for _ in range(2))
    for x in (k, v, dk, dv):
        x.fill(0.0)
    if candidate:
        _read(mK[batch, row, head, None], lane, k)
        _read(mV[batch, row, head, None], lane, v)
    place = batch, row, slot, lane
    kind = candidate, walk.is_spare(t, rows, row)
    tensors = mQ, mO, mdO, mLSE, mdLSE, sums.by_row(mSums, t.piece[1]), mStats
    if cutlass.const_expr(grouped):
        group = mQ.shape[2] // num_heads
        for member in cutlass.range(group, unroll=1):
            _prepare_query(t, tensors, place, kind, head * group + member, scales, k, v, dk, dv)
    else:
        _prepare_query(t, tensors, place, kind, head, scales, k, v, dk, dv)
    if row < seqlen and not history:
        for i in cutlass.range_constexpr(COLUMNS):
            dk[i] = dk[i] * scales[0]
        _write(dk, mdK[batch, row, head, None], lane, t.dtype)
        _write(dv, mdV[batch, row, head, None], lane, t.dtype)


@cute.jit
def _prepare_query(
    t: BackwardTraits, tensors: Any, place: Any, kind: Any, head: Int32, scales: Any,
    k: cute.Tensor, v: cute.Tensor, dk: cute.Tensor, dv: cute.Tensor,
):  # fmt: skip
    """What a row has of a query head: LSE, delta, the first value of its sums; its parts are added to dk and dv."""
    mQ, mO, mdO, mLSE, mdLSE, mSums, mStats = tensors
    batch, row, slot, lane = place
    candidate, spare = kind
    q, o, do = (cute.make_rmem_tensor(COLUMNS, t.dtype) for _ in range(3))
    dq = cute.make_rmem_tensor(COLUMNS, Float32)
    for x in (q, o, do):
        x.fill(0.0)
    lse, dlse = Float32(0.0), Float32(0.0)
    if slot >= 0:
        _read(mO[batch, row, head, None], lane, o)
        _read(mdO[batch, row, head, None], lane, do)
        lse = mLSE[batch, head, row] * math.log2(math.e)
        if cutlass.const_expr(t.lse_gradient):
            dlse = mdLSE[batch, head, row]
    if candidate:
        _read(mQ[batch, row, head, None], lane, q)
    delta, score, dp = (_dot(t, x, y) for x, y in ((o, do), (q, k), (v, do)))
    delta = delta - dlse  # as the LSE's derivative by a score is the score's weight
    _, scale_log2, before_cap = scales
    slope = Float32(1.0)
    if cutlass.const_expr(t.capped):
        score = fragments.capped(score, before_cap)
        slope = slope - score * score
    p = cute.math.exp2(score * scale_log2 - lse, fastmath=True) if candidate else Float32(0.0)
    ds = p * (dp - delta) * slope
    for i in cutlass.range_constexpr(COLUMNS):
        dk[i] = dk[i] + ds * q[i].to(Float32)
        dv[i] = dv[i] + p * do[i].to(Float32)
        dq[i] = ds * k[i].to(Float32)
    mixed = mix(dq, lane)
    if slot >= 0:
        _write_sums(mixed, mSums[batch, head, slot, None], lane)
        if lane == 0:
            _write_stats(t, mStats, (batch, head, slot), lse, delta)
    if lane == 0 and spare:
        # Slots are counted as rows are, though this one has none: whatever its query is, it weighs nothing.
        _write_stats(t, mStats, (batch, head, row), Float32.inf, Float32(0.0))


@cute.jit
def prepare_ranges(
    t: BackwardTraits, mO: cute.Tensor, mdO: cute.Tensor, mLSE: cute.Tensor, mdLSE: cute.Tensor | None,
    mSums: cute.Tensor, mStats: cute.Tensor, mRanges: cute.Tensor, mSpans: cute.Tensor, num_chunks: Int32,
    num_key_chunks: Int32,
):  # fmt: skip
    """A row of a query head, whose slot has the row's number; and, in the first blocks, which rows see a key."""
    batch_size, seqlen, num_heads, _ = mdO.shape
    block, _, _ = cute.arch.block_idx()
    key_blocks = num_key_chunks * batch_size
    if block < key_blocks:
        thread, _, _ = cute.arch.thread_idx()
        batch = block // num_key_chunks
        key = (block - batch * num_key_chunks) * THREADS + thread
        if key < mSpans.shape[1]:
            mSpans[batch, key, 0], mSpans[batch, key, 1] = spans.find(mRanges, batch, key, seqlen)
    else:
        row, head, batch, lane = _place(t, block - key_blocks, num_chunks, num_heads)
        o, do = (cute.make_rmem_tensor(COLUMNS, t.dtype) for _ in range(2))
        for x in (o, do):
            x.fill(0.0)
        # Of slots behind the last row: whatever their query is, it weighs nothing.
        lse, dlse = Float32.inf, Float32(0.0)
        if row < seqlen:
            _read(mO[batch, row, head, None], lane, o)
            _read(mdO[batch, row, head, None], lane, do)
            lse = mLSE[batch, head, row] * math.log2(math.e)
            if cutlass.const_expr(t.lse_gradient):
                # Of a row that sees nothing it may be infinite, and would meet a weight of 0.
                dlse = mdLSE[batch, head, row] if lse > -Float32.inf else Float32(0.0)
        delta = _dot(t, o, do) - dlse
        if row < cute.round_up(seqlen, t.tile_m):
            first = cute.make_rmem_tensor(COLUMNS, Float32)
            first.fill(0.0)
            _write_sums(first, sums.by_row(mSums, t.piece[1])[batch, head, row, None], lane)
            if lane == 0:
                _write_stats(t, mStats, (batch, head, row), lse, delta)


@cute.jit
def finish(
    t: BackwardTraits, mSums: cute.Tensor, mdQ: cute.Tensor, mBounds: cute.Tensor, scale: Float32, num_chunks: Int32
):
    """Sums of dQ, scaled and rounded; 0 in rows that see nothing."""
    _, seqlen, num_heads, _ = mdQ.shape
    block, _, _ = cute.arch.block_idx()
    row, head, batch, lane = _place(t, block, num_chunks, num_heads)
    slot = row if row < seqlen else Int32(-1)
    if cutlass.const_expr(not t.ranges):
        rows = walk.ranges(walk.clip(walk.bounds_of(mBounds, batch), seqlen))
        slot = walk.slot_of(t, rows, row)
    mixed = cute.make_rmem_tensor(COLUMNS, Float32)
    mixed.fill(0.0)
    if slot >= 0 and lane * COLUMNS < t.width:
        cute.autovec_copy(_part(sums.by_row(mSums, t.piece[1])[batch, head, slot, None], lane), mixed)
    dq = unmix(mixed, lane)
    for i in cutlass.range_constexpr(COLUMNS):
        dq[i] = dq[i] * scale
    if row < seqlen:
        _write(dq, mdQ[batch, row, head, None], lane, t.dtype)


@cute.jit
def mix(x: cute.Tensor, lane: Int32):
    """Columns in the order in which sums of dQ lie in memory.

    Of 16 columns a thread of an accumulator holds ``2 quad``, ``2 quad + 1``, and the same 8 further on. In memory
    they are neighbours, so that it adds them by one instruction. Threads with lanes ``2 n`` and ``2 n + 1`` hold the
    16 columns, and both their halves in memory.
    """
    low = lane % 2 == 0
    swapped = _swap([x[i + 4] if low else x[i] for i in range(4)])
    mixed = cute.make_rmem_tensor(COLUMNS, Float32)
    for i in cutlass.range_constexpr(4):
        pair, e = i // 2, i % 2
        mixed[4 * pair + e] = x[i] if low else swapped[i]
        mixed[4 * pair + 2 + e] = swapped[i] if low else x[i + 4]
    return mixed


@cute.jit
def unmix(mixed: cute.Tensor, lane: Int32):
    """The inverse of ``mix``."""
    low = lane % 2 == 0
    first = [mixed[4 * (i // 2) + i % 2] for i in range(4)]
    second = [mixed[4 * (i // 2) + 2 + i % 2] for i in range(4)]
    swapped = _swap([second[i] if low else first[i] for i in range(4)])
    x = cute.make_rmem_tensor(COLUMNS, Float32)
    for i in cutlass.range_constexpr(4):
        x[i] = first[i] if low else swapped[i]
        x[i + 4] = swapped[i] if low else second[i]
    return x


def _swap(values: list[Float32]) -> list[Float32]:
    return [cute.arch.shuffle_sync_bfly(value, offset=1) for value in values]


@cute.jit
def _place(t: BackwardTraits, block: Int32, num_chunks: Int32, num_heads: Int32):
    """Row, head and batch row of a thread, and its place among those that read the row."""
    thread, _, _ = cute.arch.thread_idx()
    lanes = lanes_per_row(t)
    heads_before = block // num_chunks
    batch = heads_before // num_heads
    row = (block - heads_before * num_chunks) * rows_per_block(t) + thread // lanes
    return row, heads_before - batch * num_heads, batch, thread % lanes


def _part(x: cute.Tensor, lane: Int32) -> cute.Tensor:
    return cute.local_tile(x, (COLUMNS,), (lane,))


@cute.jit
def _read(x: cute.Tensor, lane: Int32, target: cute.Tensor):
    """Leaves ``target`` alone where the row has no such columns."""
    if lane * COLUMNS < x.shape[0]:
        cute.autovec_copy(_part(x, lane), target)


@cute.jit
def _write_sums(x: cute.Tensor, target: cute.Tensor, lane: Int32):
    if lane * COLUMNS < cute.size(target):
        cute.autovec_copy(x, _part(target, lane))


@cute.jit
def _write(x: cute.Tensor, target: cute.Tensor, lane: Int32, dtype: cutlass.Constexpr):
    rounded = cute.make_rmem_tensor(COLUMNS, dtype)
    fragments.round_to(x, rounded)
    if lane * COLUMNS < target.shape[0]:
        cute.autovec_copy(rounded, _part(target, lane))


def _write_stats(t: BackwardTraits, mStats: cute.Tensor, where: Any, lse: Float32, delta: Float32) -> None:
    batch, head, slot = where
    tile, at = slot // t.tile_m, slot % t.tile_m
    mStats[batch, head, tile, at] = lse
    mStats[batch, head, tile, t.tile_m + at] = delta


def _dot(t: BackwardTraits, x: cute.Tensor, y: cute.Tensor) -> Float32:
    total = Float32(0.0)
    for i in range(COLUMNS):
        total = total + x[i].to(Float32) * y[i].to(Float32)
    return cute.arch.warp_reduction_sum(total, threads_in_group=lanes_per_row(t))
