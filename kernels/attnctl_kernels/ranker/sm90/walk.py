"""What the backward kernels visit: rows that see something, in tiles, and the keys that they see, in blocks.

History and candidate rows see the same keys beside their own, so that where the two ranges touch they are one. Rows
lie in the scratch buffers in the order of the walk, every tile in ``tile_m`` *slots*: whatever the bounds, a tile of
scratch is aligned. At most ``seqlen / tile_m``, rounded up, plus one tile is walked.
"""

from typing import Any

import cutlass
from cutlass import Int32, cute

from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits


@cute.jit
def clip(bounds: Any, seqlen: Int32):
    """Bounds within the sequence; an empty range ends where it begins."""
    h_lo, h_hi, c_lo, c_hi = bounds
    h_lo, c_lo = cutlass.max(h_lo, 0), cutlass.max(c_lo, 0)
    return h_lo, cutlass.max(cutlass.min(h_hi, seqlen), h_lo), c_lo, cutlass.max(cutlass.min(c_hi, seqlen), c_lo)


@cute.jit
def ranges(clipped: Any):
    """``(begin, end)`` twice: the rows that see something. The second range is empty where one is enough."""
    begin, end, more_begin, more_end = clipped
    if begin < end and more_begin < more_end and more_begin <= end and begin <= more_end:
        begin, end = cutlass.min(begin, more_begin), cutlass.max(end, more_end)
        more_end = more_begin
    return begin, end, more_begin, more_end


@cute.jit
def count_tiles(t: BackwardTraits, rows: Any):
    """Of the first range, and of both."""
    begin, end, more_begin, more_end = rows
    first = (end - begin + t.tile_m - 1) // t.tile_m
    return first, first + (more_end - more_begin + t.tile_m - 1) // t.tile_m


@cute.jit
def row_tile(t: BackwardTraits, rows: Any, index: Int32):
    """First row, and the row behind the last, of a tile."""
    begin, end, more_begin, more_end = rows
    first, _ = count_tiles(t, rows)
    if index >= first:
        begin, end, index = more_begin, more_end, index - first
    begin += index * t.tile_m
    return begin, cutlass.min(begin + t.tile_m, end)


@cute.jit
def slot_of(t: BackwardTraits, rows: Any, row: Int32):
    """Where a row lies in scratch; -1 if it sees nothing."""
    begin, end, more_begin, more_end = rows
    first, _ = count_tiles(t, rows)
    slot = Int32(-1)
    if begin <= row and row < end:
        slot = row - begin
    elif more_begin <= row and row < more_end:
        slot = first * t.tile_m + row - more_begin
    return slot


@cute.jit
def is_spare(t: BackwardTraits, rows: Any, slot: Int32):
    """Whether no row lies in a slot of a walked tile."""
    begin, end, more_begin, more_end = rows
    first, both = count_tiles(t, rows)
    behind = slot - first * t.tile_m
    behind_first = end - begin <= slot and behind < 0
    return behind_first or (more_end - more_begin <= behind and slot < both * t.tile_m)


@cute.jit
def key_block(t: BackwardTraits, index: Int32, num_heads: Int32, num_batches: Int32, seqlen: Int32, mBounds: Any):
    """``(first key, head, batch)`` of a block of the history; past the last one ``batch`` is ``num_batches``.

    Blocks of one head follow each other, so that those in flight share their queries in L2.
    """
    batch, blocks, h_lo = Int32(0), Int32(0), Int32(0)
    h_lo, blocks = _history(t, batch, seqlen, mBounds)
    while batch < num_batches and index >= blocks * num_heads:
        index -= blocks * num_heads
        batch += 1
        h_lo, blocks = _history(t, cutlass.min(batch, num_batches - 1), seqlen, mBounds)
    head = Int32(0)
    if batch < num_batches:
        head = index // blocks
    return h_lo + (index - head * blocks) * t.tile_n, head, batch


@cute.jit
def _history(t: BackwardTraits, batch: Int32, seqlen: Int32, mBounds: Any):
    h_lo, h_hi, _, _ = clip(bounds_of(mBounds, batch), seqlen)
    return h_lo, (h_hi - h_lo + t.tile_n - 1) // t.tile_n


def bounds_of(mBounds: Any, batch: Int32) -> tuple[Int32, Int32, Int32, Int32]:
    return mBounds[batch, 0], mBounds[batch, 1], mBounds[batch, 2], mBounds[batch, 3]
