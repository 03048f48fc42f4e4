"""Which tokens are what, and which blocks a tile has to visit: index arithmetic on the bounds of a batch row."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

Index = jax.Array | Any


class Bounds(NamedTuple):
    """Ascending, within the sequence: what :func:`attention` makes of any bounds."""

    hist_lo: Index
    hist_hi: Index
    cand_lo: Index
    cand_hi: Index

    @staticmethod
    def load(ref: Any, batch: Index) -> Bounds:
        return Bounds(*(ref[batch, i] for i in range(4)))

    def is_history(self, token: Index) -> Index:
        return (token >= self.hist_lo) & (token < self.hist_hi)

    def is_candidate(self, token: Index) -> Index:
        return (token >= self.cand_lo) & (token < self.cand_hi)

    def has_history(self, begin: Index, end: Index) -> Index:
        return _overlap(begin, end, self.hist_lo, self.hist_hi)

    def has_candidates(self, begin: Index, end: Index) -> Index:
        return _overlap(begin, end, self.cand_lo, self.cand_hi)


class HistoryWalk(NamedTuple):
    """The key blocks that hold history, each once: first those that hold something else, too, then the full ones."""

    first: Index
    last: Index
    head: Index  # 1 if the first block is ragged
    ragged: Index  # ragged blocks: 0, 1 or 2
    steps: Index

    @staticmethod
    def of(bounds: Bounds, block: int, visible: Index) -> HistoryWalk:
        """``visible``: whether the tile sees the history at all."""
        first, end = lax.div(bounds.hist_lo, jnp.int32(block)), _ceil(bounds.hist_hi, block)
        steps = jnp.where(visible & (bounds.hist_lo < bounds.hist_hi), end - first, 0)
        head = jnp.minimum(_one_if(lax.rem(bounds.hist_lo, jnp.int32(block)) > 0), steps)
        tail = jnp.minimum(_one_if(lax.rem(bounds.hist_hi, jnp.int32(block)) > 0), steps - head)
        return HistoryWalk(first, end - 1, head, head + tail, steps)

    def block(self, step: Index) -> Index:
        full = self.first + self.head + step - self.ragged
        return jnp.where(step < self.head, self.first, jnp.where(step < self.ragged, self.last, full))


class QueryWalk(NamedTuple):
    """The query blocks that hold history or candidates, each once."""

    first: Index
    history: Index  # blocks that hold history
    next: Index  # the first block of candidates that is not among them
    steps: Index

    @staticmethod
    def of(bounds: Bounds, block: int) -> QueryWalk:
        first, end = lax.div(bounds.hist_lo, jnp.int32(block)), _ceil(bounds.hist_hi, block)
        history = jnp.where(bounds.hist_lo < bounds.hist_hi, end - first, 0)
        following = lax.div(bounds.cand_lo, jnp.int32(block))
        following = jnp.where(history > 0, jnp.maximum(following, end), following)
        count = jnp.maximum(_ceil(bounds.cand_hi, block) - following, 0)
        return QueryWalk(first, history, following, history + jnp.where(bounds.cand_lo < bounds.cand_hi, count, 0))

    def block(self, step: Index) -> Index:
        return jnp.where(step < self.history, self.first + step, self.next + step - self.history)


def own_blocks(bounds: Bounds, begin: Index, end: Index, block: int) -> tuple[Index, Index]:
    """First and number of the query blocks that hold candidates of the tokens from ``begin`` to ``end``."""
    begin, end = jnp.maximum(begin, bounds.cand_lo), jnp.minimum(end, bounds.cand_hi)
    first = lax.div(begin, jnp.int32(block))
    return first, jnp.where(begin < end, _ceil(end, block) - first, 0)


def grid_of(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Of batch rows, heads and tiles. Tiles go fastest: those that run at a time read the same keys from L2."""
    return {"grid": shape, "grid_names": ("batch", "heads", "tiles")}


def _overlap(begin: Index, end: Index, lo: Index, hi: Index) -> Index:
    return jnp.maximum(begin, lo) < jnp.minimum(end, hi)


def _ceil(value: Index, block: int) -> Index:
    return pl.cdiv(value, jnp.int32(block))


def _one_if(condition: Index) -> Index:
    return jnp.where(condition, 1, 0)
