"""A mask as FlexAttention takes it: lists of key blocks per query block and back, and an element predicate.

The lists are those of `create_block_mask`, entry by entry, but come from tile arithmetic: that function evaluates the
predicate on every element, which at 131072 tokens are 2^34. NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl_kernels import masks
from attnctl_kernels.contract import Problem, SparseBlock

WHOLE = 1 << 30  # the one block of a call without a mask: longer than any sequence

Sees = Callable[[Any, Any, Sequence[Any]], Any]  # query, key, tables on the device -> whether it is visible


@dataclass(frozen=True, slots=True)
class FlexMask:
    """All batches and heads share it, so that each array begins with two dimensions of 1."""

    seqlens: tuple[int, int]
    block_size: SparseBlock
    lists: dict[str, NDArray[np.int32]]  # under the names of `BlockMask`'s arguments
    tables: tuple[NDArray[Any], ...] = ()  # what the predicate looks up
    sees: Sees | None = None  # None: everything


def flex_mask(problem: Problem, sparse_block: SparseBlock | None) -> FlexMask:
    """The mask in blocks of ``sparse_block``; None: what a call without a mask gets, one block for everything."""
    if sparse_block is None:
        one, zero = np.ones((1, 1, 1), np.int32), np.zeros((1, 1, 1, 1), np.int32)
        lists = {"kv_num_blocks": one, "kv_indices": zero, "q_num_blocks": one, "q_indices": zero}
        return FlexMask((1, 1), (WHOLE, WHOLE), lists)
    pattern = masks.pattern(problem.mask, problem.seqlen_q, problem.seqlen_k)
    tables = _tables(pattern)
    numbers = {id(table): number for number, table in enumerate(tables)}
    return FlexMask(
        seqlens=(problem.seqlen_q, problem.seqlen_k),
        block_size=sparse_block,
        lists=_lists(_classes(problem, sparse_block)),
        tables=tuple(table if table.dtype == np.bool_ else table.astype(np.int32) for table in tables),
        sees=lambda q, k, captured: pattern.sees(q, k, lambda table: captured[numbers[id(table)]]),
    )


def _tables(pattern: masks.Pattern) -> list[NDArray[Any]]:
    """The arrays that the predicate looks up, in the order in which it first asks for them."""
    asked: dict[int, NDArray[Any]] = {}
    pattern.sees(np.zeros(1, np.int64), np.zeros(1, np.int64), lambda table: asked.setdefault(id(table), table))
    return list(asked.values())


def _classes(problem: Problem, sparse_block: SparseBlock) -> masks.Classes:
    """A block that the lengths cut short is never full here: kernels mask no keys in full blocks."""
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *sparse_block)
    for rows, length, block in ((classes, problem.seqlen_q, 0), (classes.T, problem.seqlen_k, 1)):
        if length % sparse_block[block]:
            rows[-1][rows[-1] == masks.FULL] = masks.PARTIAL
    return classes


def _lists(classes: masks.Classes) -> dict[str, NDArray[np.int32]]:
    lists = {}
    for prefix, wanted in (("", masks.PARTIAL), ("full_", masks.FULL)):
        by_query = classes == wanted
        for side, listed in (("kv", by_query), ("q", by_query.T)):
            lists[f"{prefix}{side}_num_blocks"] = listed.sum(axis=1, dtype=np.int32).reshape(1, 1, -1)
            # Of full width, listed blocks first: kernels up to torch 2.11 have one stride for both kinds of list.
            indices = np.argsort(~listed, axis=1, kind="stable").astype(np.int32)
            lists[f"{prefix}{side}_indices"] = indices.reshape(1, 1, *listed.shape)  # `[None, None]` has strides of 0
    return lists
