"""The list of tiles, those that visit the most keys first."""

from typing import Any

import cuda.bindings.driver as cuda
from cutlass import Int32, cute

from attnctl_kernels.ranker.sm90.schedule import bounds_of, visits
from attnctl_kernels.ranker.sm90.traits import ForwardTraits

THREADS = 128


@cute.jit
def list_tiles(
    t: ForwardTraits, mBounds: cute.Tensor, mOrder: cute.Tensor, shape: Any, keys: Int32, stream: cuda.CUstream
):
    """Launch the kernel that fills ``mOrder``, ahead of the one that reads it."""
    seqlen, _, _, num_batches = shape
    blocks = cute.ceil_div(cute.ceil_div(seqlen, t.tile_m) * num_batches, THREADS)
    Lister(t).kernel(mBounds, mOrder, shape, keys).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


class Lister:
    def __init__(self, traits: ForwardTraits) -> None:
        self.traits = traits

    @cute.kernel
    def kernel(self, mBounds: cute.Tensor, mOrder: cute.Tensor, shape: Any, keys: Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        put_in_order(self.traits, block * THREADS + thread, mBounds, mOrder, shape, keys)


@cute.jit
def put_in_order(t: ForwardTraits, index: Int32, mBounds: cute.Tensor, mOrder: cute.Tensor, shape: Any, keys: Int32):
    """Write the places of a tile of rows in a batch row, for all heads: they all visit the same keys.

    A tile's place is the number of those before it, so that every thread counts, and none waits for another. Among
    equals tiles keep the order of batch row, head and row.
    """
    seqlen, _, num_heads, num_batches = shape
    tiles_m = cute.ceil_div(seqlen, t.tile_m)
    if index < tiles_m * num_batches:
        batch, tile = index // tiles_m, index % tiles_m
        own = _length(t, batch, tile, seqlen, keys, mBounds)
        before, level, above = Int32(0), Int32(0), Int32(0)  # longer or in an earlier batch row; equal, in this one
        for other_batch in range(num_batches):
            for other in range(tiles_m):
                length = _length(t, other_batch, other, seqlen, keys, mBounds)
                before += Int32(length > own or (length == own and other_batch < batch))
                level += Int32(length == own and other_batch == batch)
                above += Int32(length == own and other_batch == batch and other < tile)
        for head in range(num_heads):
            mOrder[num_heads * before + head * level + above] = (batch * num_heads + head) * tiles_m + tile


@cute.jit
def _length(t: ForwardTraits, batch: Int32, tile: Int32, seqlen: Int32, keys: Int32, mBounds: cute.Tensor) -> Int32:
    row = tile * t.tile_m
    end = row + t.tile_m
    _, blocks, _ = visits(t, row, end, keys, bounds_of(t, row, end, batch, seqlen, mBounds))
    return blocks
