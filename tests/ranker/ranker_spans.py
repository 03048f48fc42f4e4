"""What the backward kernels do with ranges, ``sm90/spans.py``, compiled for the host: the functions of the device."""

from typing import NamedTuple

import numpy as np
import torch
from cutlass import Float32, Int32, cute, range_constexpr
from cutlass.cute.runtime import from_dlpack

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import build, spans, walk
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits

THREADS = 128


class Found(NamedTuple):
    spans: np.ndarray  # [batch_size, keys, 2]
    blocks: np.ndarray  # [grid, 3]: first key, head, batch
    tiles: list[list[tuple[int, int]]]  # per block: first row, and the row behind the last that is loaded
    kept: np.ndarray  # [grid, slots, tile_n]: weights of 1 in walked tiles, with what is hidden of them


class Spans:
    def __init__(self, tile_m, tile_n, lengths, batch_size, num_heads):
        (self.seqlen, self.keys), self.tile_m, self.tile_n, self.num_heads = lengths, tile_m, tile_n, num_heads
        self.traits = BackwardTraits(build.DTYPES["bfloat16"], 64, tile_m, tile_n, 2, ranges=True)
        self.slots = -(-self.seqlen // tile_m) * tile_m
        grid = -(-self.keys // tile_n) * num_heads * batch_size
        shapes = {
            "ranges": (batch_size, self.seqlen, 2),
            "spans": (batch_size, self.keys, 2),
            "blocks": (grid, 3),
            "counts": (grid,),
            "tiles": (grid, self.slots // tile_m, 2),
        }
        self.arrays = {name: torch.zeros(shape, dtype=torch.int32) for name, shape in shapes.items()}
        self.arrays["kept"] = torch.zeros(grid, self.slots, tile_n)
        self.compiled = cute.compile(self.fill, *self._arguments())

    def __call__(self, table):
        for array in self.arrays.values():
            array.zero_()
        self.arrays["ranges"].copy_(torch.as_tensor(table))
        self.compiled(*self._arguments())
        found = {name: array.numpy().copy() for name, array in self.arrays.items()}
        tiles = [
            [tuple(each) for each in rows[:count].tolist()]
            for rows, count in zip(found["tiles"], found["counts"], strict=True)
        ]
        return Found(found["spans"], found["blocks"], tiles, found["kept"])

    def _arguments(self):
        ranges, *results = (from_dlpack(array) for array in self.arrays.values())
        return ranges, results

    @cute.jit
    def fill(self, ranges: cute.Tensor, results: list[cute.Tensor]):
        mSpans, blocks, counts, tiles, kept = results
        t, seqlen, keys = self.traits, Int32(self.seqlen), Int32(self.keys)
        for batch in range(ranges.shape[0]):
            for key in range(keys):
                begin, end = spans.find(ranges, Int32(batch), Int32(key), seqlen)
                mSpans[batch, key, 0] = begin
                mSpans[batch, key, 1] = end
        for index in range(blocks.shape[0]):
            first_key, head, batch = spans.key_block(t, Int32(index), Int32(self.num_heads), keys)
            blocks[index, 0] = first_key
            blocks[index, 1] = head
            blocks[index, 2] = batch
            rows = spans.rows_of_block(t, mSpans, batch, first_key, keys, seqlen)
            _, count = walk.count_tiles(t, rows)
            counts[index] = count
            for tile in range(count):
                begin, end = walk.row_tile(t, rows, Int32(tile))
                tiles[index, tile, 0] = begin
                tiles[index, tile, 1] = end
            for group in range(t.warp_groups):
                for thread in range(THREADS):
                    own_row, quad = thread // 32 * 16 + thread % 32 // 4, thread % 4
                    group_key = first_key + group * ROWS
                    seen = spans.seen_by(mSpans, (group_key, batch), Int32(own_row), Int32(quad), keys, seqlen)
                    for part in range(count * t.row_parts):
                        row = rows[0] + part * ROWS
                        weights = cute.make_rmem_tensor(ROWS // 2, Float32)
                        weights.fill(1.0)
                        spans.hide(weights, row, seen)
                        for i in range_constexpr(ROWS // 2):
                            key = group * ROWS + own_row + 8 * (i // 2 % 2)
                            kept[index, row + 8 * (i // 4) + 2 * quad + i % 2, key] = weights[i]
