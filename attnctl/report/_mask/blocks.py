"""The blocks of a mask by kind, and the same scaled down to the cells of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from attnctl.errors import UsageError
from attnctl_kernels import masks
from attnctl_kernels.contract import Case, SparseBlock

MAX_BLOCKS = 1 << 28  # one byte each, all at once
_TILES = (("tile_m", "tile_n"), ("block_q", "block_kv"), ("BLOCK_M", "BLOCK_N"))
_UNKNOWN = (128, 128)

Kinds = NDArray[np.int8]


class Kind(IntEnum):
    """What a block, or a cell of several, looks like. The first three are the classes of ``masks.classify``."""

    EMPTY = masks.EMPTY
    PARTIAL = masks.PARTIAL
    FULL = masks.FULL
    DIAGONAL = 3  # partial, and the queries meet their own keys in it


@dataclass(frozen=True, slots=True)
class Cells:
    """A picture: ``kinds[row, column]``, each cell standing for ``down`` x ``across`` blocks."""

    kinds: Kinds
    down: int
    across: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """Every block of one problem at one block size."""

    case: Case
    block: SparseBlock
    classes: masks.Classes

    @property
    def on_diagonal(self) -> int:
        """How many partial blocks a query's own position lies in."""
        return int(np.count_nonzero(self.classes[_diagonal(self.case, self.classes, self.block)] == Kind.PARTIAL))

    def cells(self, most_down: int, most_across: int) -> Cells:
        """At most so many cells, as square in tokens as whole blocks allow.

        A cell is full or empty only where all of its blocks are.
        """
        problem, (block_q, block_kv) = self.case.problem, self.block
        tokens = max(problem.seqlen_q / most_down, problem.seqlen_k / most_across)
        down = _blocks_per_cell(tokens, block_q, self.classes.shape[0], most_down)
        across = _blocks_per_cell(tokens, block_kv, self.classes.shape[1], most_across)
        down, across = min(down, self.classes.shape[0]), min(across, self.classes.shape[1])
        rows, columns = np.arange(0, self.classes.shape[0], down), np.arange(0, self.classes.shape[1], across)
        least = np.minimum.reduceat(np.minimum.reduceat(self.classes, columns, axis=1), rows, axis=0)
        most = np.maximum.reduceat(np.maximum.reduceat(self.classes, columns, axis=1), rows, axis=0)
        kinds: Kinds = np.where(least == most, least, np.int8(Kind.PARTIAL))
        diagonal = _diagonal(self.case, kinds, (block_q * down, block_kv * across))
        kinds[diagonal] = np.where(kinds[diagonal] == Kind.PARTIAL, np.int8(Kind.DIAGONAL), kinds[diagonal])
        return Cells(kinds, down, across)


def blocks_of(case: Case, block: SparseBlock | None = None) -> Blocks:
    """Classify the blocks of ``case``; the element mask is never built.

    Raises:
        UsageError: there are too many blocks.
    """
    block = block or block_size(case)
    problem = case.problem
    count = -(-problem.seqlen_q // block[0]) * -(-problem.seqlen_k // block[1])
    if count > MAX_BLOCKS:
        raise UsageError(
            f"{problem.slug}: {count} blocks of {block[0]} x {block[1]} "
            f"are more than the {MAX_BLOCKS} that show counts",
            "--seq-len shows the profile at a shorter length",
        )
    return Blocks(case, block, masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block))


def block_size(case: Case) -> SparseBlock:
    """The blocks that are skipped: sparse blocks, or the kernel's tiles where the call is not block sparse."""
    tiles = ((case.config.get(rows), case.config.get(keys)) for rows, keys in _TILES)
    found = next(((rows, keys) for rows, keys in tiles if isinstance(rows, int) and isinstance(keys, int)), _UNKNOWN)
    return case.sparse_block or found


def _blocks_per_cell(tokens: float, block: int, blocks: int, most: int) -> int:
    """Near ``tokens``, but never so few that there are more than ``most`` cells."""
    return max(1, round(tokens / block), -(-blocks // most))


def _diagonal(case: Case, grid: Kinds, block: SparseBlock) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of each block of ``grid``, of ``block`` tokens, in which a query's own position lies."""
    problem = case.problem
    if problem.mask.pattern == "blocks":  # its rows and its keys are counted from two starts
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    first = np.arange(len(grid)) * block[0] + problem.seqlen_k - problem.seqlen_q
    last = np.minimum(first + block[0], problem.seqlen_k) - 1
    start = np.maximum(first, 0) // block[1]
    count = np.maximum(last // block[1] + 1 - start, 0)
    row = np.repeat(np.arange(len(grid)), count)
    column = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + start[row]
    return row, column
