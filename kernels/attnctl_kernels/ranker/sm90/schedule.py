"""Which tiles a thread block computes, and what they see."""

from typing import Any

import cutlass
from cutlass import Int32, cute

from attnctl_kernels.ranker.sm90.traits import ForwardTraits


def first_tile() -> tuple[Int32, Int32]:
    """This block's first tile, and the step to the next: tiles are dealt out in turn."""
    index, _, _ = cute.arch.block_idx()
    grid, _, _ = cute.arch.grid_dim()
    return index, grid


@cute.jit
def locate(t: ForwardTraits, index: Int32, shape: Any, mBounds: cute.Tensor):
    """``(row, head, batch)`` where a tile begins, and the bounds of its batch row; past the last tile, of the last row.

    Tiles of one head follow each other, so that those in flight share their keys in L2.
    """
    seqlen, _, num_heads, num_batches = shape
    tiles_m = cute.ceil_div(seqlen, t.tile_m)
    heads_before = index // tiles_m
    batches_before = heads_before // num_heads
    batch = cutlass.min(batches_before, num_batches - 1)
    row = (index - heads_before * tiles_m) * t.tile_m
    head = heads_before - batches_before * num_heads
    return (row, head, batch), (mBounds[batch, 0], mBounds[batch, 1], mBounds[batch, 2], mBounds[batch, 3])


@cute.jit
def visits(t: ForwardTraits, row: Int32, seqlen: Int32, bounds: Any):
    """Of the tile that begins at ``row``: the bounds, clipped; the blocks of keys; and whether it has candidates."""
    h_lo, h_hi, c_lo, c_hi = bounds
    h_lo, c_lo = cutlass.max(h_lo, 0), cutlass.max(c_lo, 0)
    h_hi, c_hi = cutlass.min(h_hi, seqlen), cutlass.min(c_hi, seqlen)
    has_candidates = c_lo < cutlass.min(row + t.tile_m, c_hi) and row < c_hi
    has_history = h_lo < cutlass.min(row + t.tile_m, h_hi) and row < h_hi
    blocks = Int32(0)
    if (has_candidates or has_history) and h_hi > h_lo:
        blocks = (h_hi - h_lo + t.tile_n - 1) // t.tile_n
    return (h_lo, h_hi, c_lo, c_hi), blocks, has_candidates
