"""What several rules need: tiles and sparse blocks that fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.flex import options
from attnctl_kernels.flex.tiles import SMALLEST_TILE
from attnctl_kernels.rule import Fix, nearest_multiples

REBUILD = "rebuild the mask"
ROWS, KEYS = 0, 1  # sides of a sparse block
_TILES = (256, 128, 64, 32, 16)


class Side(NamedTuple):
    """One option that sizes a tile, and the side of the sparse block that it has to divide."""

    name: str
    side: int

    @property
    def what(self) -> str:
        return ("query", "key")[self.side]


FORWARD = (Side("BLOCK_M", ROWS), Side("BLOCK_N", KEYS))
BACKWARD = (Side("BLOCK_M1", ROWS), Side("BLOCK_N1", KEYS), Side("BLOCK_M2", ROWS), Side("BLOCK_N2", KEYS))


def is_given(case: Case, name: str) -> bool:
    """Whether the profile, or a candidate, states the option for this pass."""
    key = options.written(case, name)
    return key in case.given or key != name


def field(case: Case, name: str) -> str:
    return f"config.{options.written(case, name)}"


def rebuilt(block: SparseBlock, rows: int, keys: int) -> tuple[Fix, ...]:
    """The nearest sparse blocks that are whole numbers of ``rows`` and ``keys``."""
    near = [nearest_multiples(size, unit) or (size,) for size, unit in zip(block, (rows, keys), strict=True)]
    pairs = dict.fromkeys((near[ROWS][end], near[KEYS][end]) for end in (0, -1))
    nearest = sorted(pairs, key=lambda pair: abs(pair[ROWS] - block[ROWS]) + abs(pair[KEYS] - block[KEYS]))
    return tuple(Fix("sparse_block", pair, REBUILD) for pair in nearest)


def largest_tile(size: int, works: Callable[[int], bool] | None = None) -> int | None:
    """The largest tile that divides ``size`` and that works."""
    return next((tile for tile in _TILES if size % tile == 0 and (not works or works(tile))), None)


def smaller_tiles(value: int) -> Iterator[int]:
    """Powers of two below ``value``, largest first."""
    tile = 1 << max(value - 1, 0).bit_length() >> 1
    while tile >= SMALLEST_TILE:
        if tile < value:
            yield tile
        tile //= 2
