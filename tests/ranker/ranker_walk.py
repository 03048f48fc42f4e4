"""The walk of the backward kernels, ``sm90/walk.py``, compiled for the host: the same functions as on the device."""

from typing import NamedTuple

import numpy as np
import torch
from cutlass import Int32, cute
from cutlass.cute.runtime import from_dlpack

from attnctl_kernels.ranker.sm90 import build, walk
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits


class Found(NamedTuple):
    tiles: list[list[tuple[int, int]]]  # per batch row: first row, and the row behind the last
    slots: np.ndarray  # [batch_size, rows]
    spare: np.ndarray  # likewise, of slots
    blocks: np.ndarray  # [grid, 3]: first key, head, batch


class Walk:
    def __init__(self, tile_m, tile_n, seqlen, batch_size, num_heads):
        self.tile_m, self.tile_n, self.seqlen, self.num_heads = tile_m, tile_n, seqlen, num_heads
        self.traits = BackwardTraits(build.DTYPES["bfloat16"], 64, tile_m, tile_n, 2)
        self.most_tiles = -(-seqlen // tile_m) + 1
        shapes = {
            "bounds": (batch_size, 4),
            "counts": (batch_size,),
            "tiles": (batch_size, self.most_tiles, 2),
            "slots": (batch_size, seqlen + 2 * tile_m),
            "spare": (batch_size, seqlen + 2 * tile_m),
            "blocks": (-(-seqlen // tile_n) * num_heads * batch_size, 3),
        }
        self.arrays = {name: torch.zeros(shape, dtype=torch.int32) for name, shape in shapes.items()}
        self.compiled = cute.compile(self.fill, *self._arguments())

    def __call__(self, bounds):
        self.arrays["bounds"].copy_(torch.tensor(bounds))
        self.compiled(*self._arguments())
        found = {name: array.numpy().copy() for name, array in self.arrays.items()}
        tiles = [
            [tuple(each) for each in rows[:count].tolist()]
            for rows, count in zip(found["tiles"], found["counts"], strict=True)
        ]
        return Found(tiles, found["slots"][:, : self.seqlen], found["spare"], found["blocks"])

    def _arguments(self):
        bounds, *results = (from_dlpack(array) for array in self.arrays.values())
        return bounds, results

    @cute.jit
    def fill(self, bounds: cute.Tensor, results: list[cute.Tensor]):
        counts, tiles, slots, spare, blocks = results
        t, seqlen = self.traits, Int32(self.seqlen)
        for batch in range(bounds.shape[0]):
            rows = walk.ranges(walk.clip(walk.bounds_of(bounds, batch), seqlen))
            _, count = walk.count_tiles(t, rows)
            counts[batch] = count
            for tile in range(count):
                begin, end = walk.row_tile(t, rows, Int32(tile))
                tiles[batch, tile, 0] = begin
                tiles[batch, tile, 1] = end
            for row in range(slots.shape[1]):
                slots[batch, row] = walk.slot_of(t, rows, Int32(row))
                spare[batch, row] = Int32(walk.is_spare(t, rows, Int32(row)))
        num_batches = Int32(bounds.shape[0])
        for index in range(blocks.shape[0]):
            first_key, head, batch = walk.key_block(t, Int32(index), Int32(self.num_heads), num_batches, seqlen, bounds)
            blocks[index, 0] = first_key
            blocks[index, 1] = head
            blocks[index, 2] = batch
