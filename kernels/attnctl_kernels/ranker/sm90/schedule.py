"""Which tiles a thread block computes, and what they see."""

from typing import Any

import cutlass
from cutlass import Int32, cute

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90.traits import ForwardTraits


def first_tile() -> tuple[Int32, Int32]:
    """This block's first tile, and the step to the next: tiles are dealt out in turn."""
    index, _, _ = cute.arch.block_idx()
    grid, _, _ = cute.arch.grid_dim()
    return index, grid


def deal(t: ForwardTraits, num_tiles: Int32, num_ctas: Int32) -> tuple[Int32, Any]:
    """How many pieces of work there are; how many of them are whole tiles, and into how many the others are cut.

    In a last round that leaves blocks idle, tiles are cut between warp groups, as far as there are blocks to take them.
    """
    if not t.balanced:
        return num_tiles, None
    rest = num_tiles % num_ctas
    pieces = cutlass.max(cutlass.min(num_ctas // cutlass.max(rest, 1), t.warp_groups), 1)
    return num_tiles - rest + rest * pieces, (num_tiles - rest, pieces)


@cute.jit
def locate(t: ForwardTraits, index: Int32, shape: Any, work: Any):
    """``(row, head, batch, end)`` of a tile, and its bounds; past the last tile, of one in the last batch row.

    Tiles of one head follow each other, so that those in flight share their keys in L2.
    """
    mBounds, mOrder, cut = work
    seqlen, _, num_heads, num_batches = shape
    tiles_m = cute.ceil_div(seqlen, t.tile_m)
    skipped, taken = Int32(0), Int32(t.warp_groups)  # warp groups of the tile
    if cutlass.const_expr(t.balanced):
        whole, pieces = cut
        over = cutlass.max(index - whole, 0)
        share = (t.warp_groups + pieces - 1) // pieces
        taken = share if index >= whole else taken
        skipped = over % pieces * taken
        index = index - over + over // pieces
    if cutlass.const_expr(t.longest_first):
        index = mOrder[cutlass.min(index, cute.size(mOrder) - 1)]
    heads_before = index // tiles_m
    batches_before = heads_before // num_heads
    batch = cutlass.min(batches_before, num_batches - 1)
    row = (index - heads_before * tiles_m) * t.tile_m
    head = heads_before - batches_before * num_heads
    end = row + t.tile_m
    if cutlass.const_expr(t.balanced):
        begin = row + skipped * ROWS
        end = cutlass.min(cutlass.min(begin + taken * ROWS, end), seqlen)
        row = begin
    return (row, head, batch, end), bounds_of(t, row, end, batch, seqlen, mBounds)


def bounds_of(t: ForwardTraits, row: Int32, end: Int32, batch: Int32, seqlen: Int32, mBounds: cute.Tensor) -> Any:
    """History and candidates of the batch row; or the ranges of the tile's first and last rows."""
    if t.ranges:
        first = cutlass.min(row, seqlen - 1)
        last = cutlass.max(cutlass.min(end, seqlen) - 1, first)
        return tuple(mBounds[batch, each, side] for each in (first, last) for side in range(2))
    return mBounds[batch, 0], mBounds[batch, 1], mBounds[batch, 2], mBounds[batch, 3]


@cute.jit
def visits(t: ForwardTraits, row: Int32, end: Int32, keys: Int32, bounds: Any):
    """Of a tile: the bounds, clipped; the blocks of keys that it visits; and whether it has candidates.

    The first two bounds are the keys that it visits; with ranges, the others are those that all of its rows see.
    """
    h_lo, h_hi, c_lo, c_hi = bounds
    blocks, has_candidates = Int32(0), cutlass.Boolean(False)
    if cutlass.const_expr(t.ranges):
        # Both ends of the ranges ascend from row to row, so that the first and the last row bound all of them.
        all_hi = cutlass.min(h_hi, keys)
        h_lo, h_hi, c_hi = cutlass.max(h_lo, 0), cutlass.min(c_hi, keys), all_hi
        blocks = _count_blocks(t, h_lo, h_hi)
    else:
        h_lo, c_lo = cutlass.max(h_lo, 0), cutlass.max(c_lo, 0)
        h_hi, c_hi = cutlass.min(h_hi, keys), cutlass.min(c_hi, keys)
        has_candidates = c_lo < cutlass.min(end, c_hi) and row < c_hi
        has_history = h_lo < cutlass.min(end, h_hi) and row < h_hi
        visible = _count_blocks(t, h_lo, h_hi)
        blocks = visible if has_candidates or has_history else Int32(0)
    return (h_lo, h_hi, c_lo, c_hi), blocks, has_candidates


def _count_blocks(t: ForwardTraits, begin: Int32, end: Int32) -> Int32:
    return (cutlass.max(end - begin, 0) + t.tile_n - 1) // t.tile_n


def bounds_of_group(t: ForwardTraits, tile: Any, group: Any, seqlen: Int32, mBounds: cute.Tensor) -> Any:
    """With ranges, the bounds of a warp group's own rows of a tile."""
    if not t.ranges:
        return None
    row, _, batch, end = tile
    first = row + group * ROWS
    return bounds_of(t, first, cutlass.min(first + ROWS, end), batch, seqlen, mBounds)


@cute.jit
def plan(t: ForwardTraits, index: Int32, shape: Any, keys: Int32, work: Any, group: Int32):
    """A tile, and what a warp group does for it: its own part, blocks of the tile, and whether it has candidates.

    The part is how many blocks come before those that the group's rows see, how many these are, and the bounds.
    """
    tile, bounds = locate(t, index, shape, work)
    row, _, _, end = tile
    mine = bounds_of_group(t, tile, group, shape[0], work[0])
    clipped, blocks, has_candidates = visits(t, row, end, keys, bounds)
    part = Int32(0), blocks, clipped
    if cutlass.const_expr(t.ranges):
        part = visits_of_group(t, clipped, blocks, keys, mine)
    if cutlass.const_expr(t.balanced):
        before, count, clipped = part
        has_rows = row + group * ROWS < end
        part = before if has_rows else blocks, count if has_rows else Int32(0), clipped
    return tile, (part, blocks, has_candidates)


@cute.jit
def visits_of_group(t: ForwardTraits, seen: Any, blocks: Int32, keys: Int32, bounds: Any):
    """Of the blocks that a tile visits, last one first: how many come before those that a group's rows see; how many
    these are; and what the rows see, as ``visits`` has it, where the first bound is still the tile's.
    """
    k_lo, k_hi, _, _ = seen
    (own_lo, own_hi, all_lo, all_hi), _, _ = visits(t, Int32(0), Int32(0), keys, bounds)
    # Always among the tile's: a table whose ends fall somewhere gives wrong results, and no thread that waits for ever.
    own_lo, own_hi = cutlass.max(own_lo, k_lo), cutlass.min(own_hi, k_hi)
    first, last = (own_lo - k_lo) // t.tile_n, (own_hi - 1 - k_lo) // t.tile_n
    count = last + 1 - first if own_hi > own_lo else Int32(0)
    before = blocks - 1 - last if own_hi > own_lo else blocks
    return before, count, (k_lo, own_hi, all_lo, all_hi)


@cute.jit
def rows_of(t: ForwardTraits, tile: Any, group: Any, seqlen: Int32) -> Int32:
    """A warp group's first row; behind the last row of all, where TMA moves nothing, if it has none."""
    row, _, _, end = tile
    first = row + group * ROWS
    if cutlass.const_expr(t.balanced):
        first = first if first < end else seqlen
    return first
