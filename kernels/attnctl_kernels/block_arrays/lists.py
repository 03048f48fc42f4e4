"""Lists of blocks, looked through by whole arrays and in pieces that fit a cache: never a copy of everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 18  # indices looked at together
SHOWN = 3  # places that a message names

Place = tuple[int, int, int, int]  # batch, head, row, entry or block


@dataclass(slots=True)
class Places:
    """How many there are, and the first few."""

    count: int = 0
    first: list[Place] = field(default_factory=list)

    def add(self, places: Iterator[Place], count: int) -> None:
        self.count += count
        while len(self.first) < SHOWN and (place := next(places, None)):
            self.first.append(place)


@dataclass(slots=True)
class Survey:
    """What one pass over the lists of one kind says."""

    shape: tuple[int, ...]  # of the indices
    blocks: int
    counts: Places = field(default_factory=Places)  # counts below 0 or above the width; the count is the last number
    outside: Places = field(default_factory=Places)  # blocks that do not exist; the block is the last number
    repeated: Places = field(default_factory=Places)  # blocks listed twice in one row
    disordered: Places = field(default_factory=Places)  # rows that do not ascend; the block out of order
    highest: int = -1

    def place(self, flat: int) -> tuple[int, int, int]:
        """Batch, head and row of a row counted through."""
        head, row = divmod(flat, self.shape[2])
        return *divmod(head, self.shape[1]), row

    def detail(self, lists: NDArray[Any], counts: NDArray[Any], at: NDArray[Any]) -> None:
        """Rows that are not plainly right; ``at`` says which they are."""
        listed = np.arange(lists.shape[1]) < counts[:, None]
        ordered = np.sort(np.where(listed, lists, np.iinfo(lists.dtype).max), axis=1)  # what is not listed comes last
        later = listed[:, 1:]
        self._add(self.outside, at, listed & ((lists < 0) | (lists >= self.blocks)), lists)
        self._add(self.disordered, at, (lists[:, 1:] < lists[:, :-1]) & later, lists[:, 1:])
        self._add(self.repeated, at, (ordered[:, 1:] == ordered[:, :-1]) & later, ordered[:, 1:])
        self.highest = max(self.highest, int(lists[listed].max(initial=-1)))

    def _add(self, places: Places, at: NDArray[Any], wrong: NDArray[Any], values: NDArray[Any]) -> None:
        where = np.argwhere(wrong)
        places.add(((*self.place(int(at[row])), int(values[row, column])) for row, column in where), len(where))


def survey(count: NDArray[Any], index: NDArray[Any], blocks: int) -> Survey:
    """Look through ``count [B, H, M]`` and ``index [B, H, M, N]``, whose blocks are ``0 .. blocks - 1``.

    A row that ascends repeats nothing and is within bounds if its ends are: one comparison per index. Only other rows
    are looked at in detail.
    """
    found = Survey(index.shape, blocks)
    width = index.shape[3]
    counts = count.reshape(-1)
    at = np.flatnonzero((counts < 0) | (counts > width))
    found.counts.add(((*found.place(int(each)), int(counts[each])) for each in at), len(at))
    if not width:
        return found
    lists = index.reshape(-1, width)
    columns = np.arange(width, dtype=np.int32)
    step = max(1, PIECE // width)
    for start in range(0, len(counts), step):
        part = lists[start : start + step]
        lengths = np.clip(counts[start : start + step], 0, width)
        rising = part[:, 1:] > part[:, :-1]
        if (lengths < width).any():
            rising |= columns[1:] >= lengths[:, None]
        last = np.take_along_axis(part, np.maximum(lengths.astype(np.int64) - 1, 0)[:, None], axis=1)[:, 0]
        some = lengths > 0
        odd = ~rising.all(axis=1) | (some & ((part[:, 0] < 0) | (last >= blocks)))
        found.highest = max(found.highest, int(last[some].max(initial=-1)))
        if odd.any():
            found.detail(part[odd], lengths[odd], start + np.flatnonzero(odd))
    return found


def grid(count: NDArray[Any], index: NDArray[Any], blocks: int) -> NDArray[np.bool_]:
    """Which blocks the rows of one head list: ``count [M]``, ``index [M, N]``, within bounds -> ``[M, blocks]``."""
    listed = np.zeros((len(count), blocks), dtype=bool)
    if index.shape[1]:
        cells = index + (np.arange(len(count), dtype=np.int64) * blocks).astype(np.int32)[:, None]
        if (count < index.shape[1]).any():
            cells = cells[np.arange(index.shape[1], dtype=np.int32) < count[:, None]]
        listed.reshape(-1)[cells.reshape(-1)] = True
    return listed
