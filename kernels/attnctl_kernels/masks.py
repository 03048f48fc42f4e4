"""The mask patterns: which key a query may see, and which tiles of the score matrix are empty, partial or full.

A pattern is one class with two descriptions of the same mask:

``sees``
    The element predicate, in operators that NumPy arrays and torch tensors share, so that the checks and the kernels
    written in PyTorch use one definition.
``strips``
    The visible elements as rectangles that do not overlap, one to a few per row at most. Everything about tiles
    follows from them by arithmetic; nothing ever builds the element mask.

Query ``i`` sits at key position ``i + seqlen_k - seqlen_q``: rows and columns are aligned at the end. A position
below zero (more queries than keys) is before every key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnctl_kernels.contract import Mask
from attnctl_kernels.strips import Ints, Strips, tile_sizes

Classes = NDArray[np.int8]
Table = Callable[[NDArray[Any]], Any]  # moves a look-up table to where the indices are

EMPTY, PARTIAL, FULL = 0, 1, 2

_TILES_AT_ONCE = 1 << 22  # bounds the memory of a classification, whatever the sequence length


class BlockLists(NamedTuple):
    """Per query tile, the key tiles to visit, ascending. Entries at and after the count are 0 and mean nothing."""

    partial_count: NDArray[np.int32]  # [q_tiles]
    partial_index: NDArray[np.int32]  # [q_tiles, largest count, at least 1]
    full_count: NDArray[np.int32]
    full_index: NDArray[np.int32]


class Pattern(ABC):
    """A mask at concrete lengths."""

    needs: ClassVar[tuple[str, ...]] = ()  # the facts that ``Mask`` must carry

    def __init__(self, mask: Mask, seqlen_q: int, seqlen_k: int) -> None:
        missing = [name for name in self.needs if getattr(mask, name) is None]
        if missing:
            raise ValueError(f"mask pattern {mask.pattern} needs {' and '.join(missing)}")
        self.mask = mask
        self.seqlen_q = seqlen_q
        self.seqlen_k = seqlen_k
        self.offset = seqlen_k - seqlen_q
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - most patterns have nothing to prepare
        """Check the facts against the lengths; make look-up tables."""

    @abstractmethod
    def sees(self, q: Any, k: Any, table: Table) -> Any:
        """Whether query ``q`` sees key ``k``: index arrays or tensors that broadcast."""

    @abstractmethod
    def strips(self) -> Strips:
        """The visible elements as rectangles; those outside ``[0, seqlen_k)`` are cut off by the caller."""

    @property
    def positions(self) -> Ints:
        return np.arange(self.offset, self.seqlen_k)

    def all_rows(self, start: int, stop: int) -> Strips:
        """One rectangle: every row sees the same keys."""
        return Strips.of(0, self.seqlen_q, start, stop)

    def each_row(self, start: Ints | int, stop: Ints | int) -> Strips:
        """One rectangle per row."""
        return Strips.of(np.arange(self.seqlen_q), 1, start, stop)


class Dense(Pattern):
    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return (k >= 0) | (q >= 0)

    def strips(self) -> Strips:
        return self.all_rows(0, self.seqlen_k)


class Causal(Pattern):
    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return k <= q + self.offset

    def strips(self) -> Strips:
        return self.each_row(0, self.positions + 1)


class SlidingWindow(Pattern):
    needs = ("window",)

    def prepare(self) -> None:
        self.window = int(self.mask.window or 0)

    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return (k <= q + self.offset) & (k > q + (self.offset - self.window))

    def strips(self) -> Strips:
        return self.each_row(self.positions + 1 - self.window, self.positions + 1)


class PrefixLM(Pattern):
    needs = ("prefix_len",)

    def prepare(self) -> None:
        self.prefix_len = min(int(self.mask.prefix_len or 0), self.seqlen_k)

    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return (k < self.prefix_len) | (k <= q + self.offset)

    def strips(self) -> Strips:
        return self.all_rows(0, self.prefix_len).join(self.each_row(self.prefix_len, self.positions + 1))


class HistoryCandidate(Pattern):
    """History rows see all history; a candidate row sees history and itself."""

    needs = ("history_len",)

    def prepare(self) -> None:
        if self.seqlen_q != self.seqlen_k:
            raise ValueError(
                f"mask pattern history_candidate needs seqlen_q = seqlen_k, got {self.seqlen_q} and {self.seqlen_k}"
            )
        self.history_len = min(int(self.mask.history_len or 0), self.seqlen_k)

    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return (k < self.history_len) | (k == q)

    def strips(self) -> Strips:
        candidates = np.arange(self.history_len, self.seqlen_k)
        return self.all_rows(0, self.history_len).join(Strips.of(candidates, 1, candidates, candidates + 1))


class Document(Pattern):
    """A query sees the keys of its own document, up to itself where ``causal``."""

    def prepare(self) -> None:
        if self.mask.document_lens is not None:
            lengths = np.asarray(self.mask.document_lens, dtype=np.int64)
            if lengths.sum() != self.seqlen_k:
                raise ValueError(f"document_lens sum to {lengths.sum()}, the sequence length is {self.seqlen_k}")
            ends = np.cumsum(lengths)
        elif self.mask.document_len is not None:
            ends = np.arange(self.mask.document_len, self.seqlen_k + self.mask.document_len, self.mask.document_len)
        else:
            raise ValueError("mask pattern document needs document_len or document_lens")
        self.stop = np.minimum(ends, self.seqlen_k)
        self.start = np.concatenate(([0], self.stop[:-1]))
        self.document = np.repeat(np.arange(len(self.stop)), self.stop - self.start)  # of each key

    def sees(self, q: Any, k: Any, table: Table) -> Any:
        document = table(self.document)
        position = q + self.offset
        same = (document[position.clip(min=0)] == document[k]) & (position >= 0)
        return same & (k <= position) if self.mask.causal else same

    def strips(self) -> Strips:
        if not self.mask.causal:
            return Strips.of(self.start - self.offset, self.stop - self.start, self.start, self.stop)
        positions = self.positions[self.positions >= 0]
        return Strips.of(positions - self.offset, 1, self.start[self.document[positions]], positions + 1)


class Blocks(Pattern):
    """Listed blocks of the score matrix; rows are counted from the first query, not aligned at the end."""

    needs = ("block_size", "rows")

    def prepare(self) -> None:
        self.block_q, self.block_kv = self.mask.block_size or (1, 1)
        rows = self.mask.rows or ()
        self.listed = np.zeros((_tiles(self.seqlen_q, self.block_q), _tiles(self.seqlen_k, self.block_kv)), dtype=bool)
        if len(rows) != len(self.listed):
            raise ValueError(
                f"mask.rows lists {len(rows)} query blocks; {self.seqlen_q} queries in blocks of {self.block_q} "
                f"make {len(self.listed)}"
            )
        for row, keys in enumerate(rows):
            outside = [key for key in keys if not 0 <= key < self.listed.shape[1]]
            if outside:
                raise ValueError(
                    f"mask.rows[{row}] lists key block {outside[0]}; {self.seqlen_k} keys in blocks of "
                    f"{self.block_kv} make {self.listed.shape[1]}"
                )
            self.listed[row, list(keys)] = True

    def sees(self, q: Any, k: Any, table: Table) -> Any:
        return table(self.listed)[q // self.block_q, k // self.block_kv]

    def strips(self) -> Strips:
        row, key = np.nonzero(self.listed)
        return Strips.of(row * self.block_q, self.block_q, key * self.block_kv, (key + 1) * self.block_kv)


PATTERNS: dict[str, type[Pattern]] = {
    "dense": Dense,
    "causal": Causal,
    "sliding_window": SlidingWindow,
    "document": Document,
    "prefix_lm": PrefixLM,
    "history_candidate": HistoryCandidate,
    "blocks": Blocks,
}


def pattern(mask: Mask, seqlen_q: int, seqlen_k: int) -> Pattern:
    """The pattern of ``mask`` at these lengths.

    Raises:
        ValueError: the mask lacks a fact that its pattern needs, or contradicts the lengths.
    """
    return PATTERNS[mask.pattern](mask, seqlen_q, seqlen_k)


def visible(mask: Mask, q_index: Any, k_index: Any, seqlen_q: int, seqlen_k: int) -> NDArray[np.bool_]:
    """Whether each query sees each key; the index arrays broadcast and must lie inside the lengths."""
    seen = pattern(mask, seqlen_q, seqlen_k).sees(np.asarray(q_index), np.asarray(k_index), np.asarray)
    return np.asarray(seen, dtype=bool)


def count_visible(mask: Mask, seqlen_q: int, seqlen_k: int) -> int:
    """How many (query, key) pairs of one head are visible."""
    return pattern(mask, seqlen_q, seqlen_k).strips().cut(seqlen_q, seqlen_k).area()


def density(mask: Mask, seqlen_q: int, seqlen_k: int) -> float:
    """Visible pairs over all pairs."""
    return count_visible(mask, seqlen_q, seqlen_k) / (seqlen_q * seqlen_k)


def classify(mask: Mask, seqlen_q: int, seqlen_k: int, block_q: int, block_kv: int) -> Classes:
    """EMPTY, PARTIAL or FULL for every tile of ``block_q`` rows and ``block_kv`` keys: ``[q_tiles, kv_tiles]``.

    Only elements that exist count, so a last tile that the lengths cut short is FULL when all it has is visible.
    A kernel that loads whole tiles has to mask the missing keys of the last tile by itself, in FULL tiles too.
    """
    strips = pattern(mask, seqlen_q, seqlen_k).strips().cut(seqlen_q, seqlen_k)
    rows, keys = tile_sizes(seqlen_q, block_q)[:, None], tile_sizes(seqlen_k, block_kv)
    classes = np.empty((len(rows), len(keys)), dtype=np.int8)
    step = max(1, _TILES_AT_ONCE // len(keys))
    for first in range(0, len(rows), step):
        tiles = range(first, min(first + step, len(rows)))
        counts = strips.count_in_tiles(tiles, block_q, block_kv, seqlen_k)
        part = classes[first : tiles.stop]
        part[...] = PARTIAL
        part[counts == 0] = EMPTY
        part[counts == rows[first : tiles.stop] * keys] = FULL
    return classes


def block_lists(classes: Classes) -> BlockLists:
    """The key tiles of each query tile, by class. For a backward pass over key tiles: of ``transpose(classes)``."""
    return BlockLists(*_list_tiles(classes == PARTIAL), *_list_tiles(classes == FULL))


def transpose(classes: Classes) -> Classes:
    """Classes with key tiles as rows: what a backward pass walks."""
    return np.ascontiguousarray(classes.T)


def _tiles(length: int, block: int) -> int:
    return -(-length // block)


def _list_tiles(wanted: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    count = wanted.sum(axis=1, dtype=np.int32)
    index = np.zeros((len(wanted), max(1, int(count.max(initial=0)))), dtype=np.int32)
    row, key = np.nonzero(wanted)
    index[row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)] = key
    return count, index
