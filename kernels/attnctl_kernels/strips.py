"""Visible elements of a mask as rectangles, and how many of them fall into each tile: sums, never the element mask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Strips(NamedTuple):
    """Rectangles that do not overlap: rows ``[row, row + height)`` see keys ``[start, stop)``."""

    row: Ints
    height: Ints
    start: Ints
    stop: Ints

    @classmethod
    def of(cls, row: Ints | int, height: Ints | int, start: Ints | int, stop: Ints | int) -> Strips:
        """One strip per entry; scalars are repeated."""
        parts = np.broadcast_arrays(*np.atleast_1d(row, height, start, stop))
        return cls(*(part.astype(np.int64) for part in parts))

    def join(self, other: Strips) -> Strips:
        return Strips(*(np.concatenate(parts) for parts in zip(self, other, strict=True)))

    def cut(self, seqlen_q: int, seqlen_k: int) -> Strips:
        """Only the rows and keys that exist, and no empty strip."""
        row, start = np.maximum(self.row, 0), np.maximum(self.start, 0)
        height = np.minimum(self.row + self.height, seqlen_q) - row
        stop = np.minimum(self.stop, seqlen_k)
        some = (height > 0) & (stop > start)
        return Strips(row[some], height[some], start[some], stop[some])

    def split(self, block: int, tiles: range) -> tuple[Ints, Ints, Ints]:
        """The pieces of the strips in ``tiles`` of ``block`` rows: strip, tile and number of rows of each piece."""
        first = np.maximum(self.row // block, tiles.start)
        last = np.minimum((self.row + self.height - 1) // block, tiles.stop - 1)
        pieces = np.maximum(last - first + 1, 0)
        strip = np.repeat(np.arange(len(self.row)), pieces)
        tile = first[strip] + np.arange(len(strip)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        above = np.maximum(self.row[strip], tile * block)
        below = np.minimum((self.row + self.height)[strip], (tile + 1) * block)
        return strip, tile, below - above

    def area(self) -> int:
        return int((self.height * (self.stop - self.start)).sum())

    def count_in_tiles(self, tiles: range, block_q: int, block_kv: int, seqlen_k: int) -> Ints:
        """Visible elements of each tile of the query tiles ``tiles``: ``[len(tiles), kv_tiles]``.

        An interval is [0, stop) less [0, start), and [0, x) covers the tiles before ``x // block_kv`` whole and
        ``x % block_kv`` keys of that one: two sums per strip, not one per tile.
        """
        strip, tile, rows = self.split(block_q, tiles)
        width = tile_sizes(seqlen_k, block_kv)
        shape = (len(tiles), len(width) + 1)  # x = seqlen_k may fall behind the last tile
        x = np.concatenate((self.stop[strip], self.start[strip]))
        cell = np.tile((tile - tiles.start) * shape[1], 2) + x // block_kv
        rows = np.concatenate((rows, -rows))
        whole = np.bincount(cell, rows, minlength=shape[0] * shape[1]).reshape(shape)
        rest = np.bincount(cell, rows * (x % block_kv), minlength=shape[0] * shape[1]).reshape(shape)
        counts = np.cumsum(whole[:, :0:-1], axis=1)[:, ::-1]  # of the bounds that reach past a tile
        counts *= width
        counts += rest[:, :-1]
        return counts.astype(np.int64)  # bincount adds in float64, which holds these integers exactly


def tile_sizes(length: int, block: int) -> Ints:
    """How much of each tile exists: ``block``, and for the last tile what is left."""
    return np.minimum(block, length - np.arange(0, length, block))
