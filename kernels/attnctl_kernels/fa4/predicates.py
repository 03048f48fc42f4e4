"""The mask patterns as element predicates that flash-attn-4's ``mask_mod`` can trace.

Where :mod:`attnctl_kernels.masks` describes a pattern by operators alone, that very predicate is traced. Documents and
listed blocks look positions up there; a kernel evaluates the predicate for every element of a partial block, so here
whatever depends on the row alone is computed from the row alone (the compiler keeps one copy per row), and look-ups go
through flat tables that the kernel reads as auxiliary tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attnctl_kernels.contract import Problem
from attnctl_kernels.masks import pattern

# A last tile looks up rows and keys behind the sequence as well; no tile is larger than this.
TILE_MARGIN = 256

Look = Callable[[int, Any], Any]  # number of the table and index -> entry


@dataclass(frozen=True, slots=True)
class Predicate:
    """``visible(q, k, look)``: whether row ``q`` sees key ``k``."""

    visible: Callable[[Any, Any, Look], Any]
    tables: tuple[tuple[int, ...], ...] = ()


def predicate(problem: Problem) -> Predicate | None:
    """The element predicate of the problem's mask; None where every key is visible."""
    mask = problem.mask
    seen = pattern(mask, problem.seqlen_q, problem.seqlen_k)
    if mask.pattern == "dense":
        return None
    if mask.pattern == "blocks":
        return _listed_blocks(problem)
    if mask.pattern == "document" and mask.document_lens is not None:
        return _ragged_documents(problem, mask.document_lens)
    if mask.pattern == "document" and mask.document_len is not None:
        return _even_documents(problem, mask.document_len)
    return Predicate(lambda q, k, _look: seen.sees(q, k, _no_table))


def _no_table(table: Any) -> Any:
    raise TypeError(f"a mask pattern looks up a table of {len(table)} entries, which flash-attn-4 cannot trace")


def _even_documents(problem: Problem, length: int) -> Predicate:
    shift = problem.seqlen_k - problem.seqlen_q

    def visible(q: Any, k: Any, _look: Look) -> Any:
        position = q + shift
        start = position // length * length
        seen = (k >= start) & (k <= position if problem.mask.causal else k < start + length)
        return seen & (position >= 0) if shift < 0 else seen

    return Predicate(visible)


def _ragged_documents(problem: Problem, lengths: Sequence[int]) -> Predicate:
    """Two tables by row: where its document starts, and where it ends."""
    shift = problem.seqlen_k - problem.seqlen_q
    start: list[int] = []
    end: list[int] = []
    for length in lengths:
        start += [len(end)] * length
        end += [len(start)] * length

    def by_row(by_position: list[int]) -> tuple[int, ...]:
        rows = [0] * max(0, -shift) + by_position[max(0, shift) :]
        return (*rows, *([0] * TILE_MARGIN))

    def visible(q: Any, k: Any, look: Look) -> Any:
        last = k <= q + shift if problem.mask.causal else k < look(1, q)
        return (k >= look(0, q)) & last

    return Predicate(visible, (by_row(start), by_row(end)))


def _listed_blocks(problem: Problem) -> Predicate:
    """One table: 1 where a query block sees a key block, row after row."""
    block_q, block_kv = problem.mask.block_size or (1, 1)
    columns = (problem.seqlen_k + TILE_MARGIN) // block_kv + 1
    table = [0] * (columns * ((problem.seqlen_q + TILE_MARGIN) // block_q + 1))
    for row, keys in enumerate(problem.mask.rows or ()):
        for key in keys:
            table[row * columns + key] = 1

    def visible(q: Any, k: Any, look: Look) -> Any:
        return look(0, q // block_q * columns + k // block_kv) == 1

    return Predicate(visible, (tuple(table),))
