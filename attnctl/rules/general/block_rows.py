"""The block list of a mask: one row per block of queries, each the blocks of keys that it sees, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.rule import Fix, Violation, rule

MOST_ROWS = 16  # that are reported one by one
MOST_BLOCKS = 16  # that a fix spells out

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What one pass over a list says about it; the list may be long and serve thousands of problems."""

    rows: Rows
    lowest: tuple[int, ...]  # of each row; 0 where it is empty
    highest: tuple[int, ...]
    disordered: tuple[int, ...]  # indices of rows that do not ascend

    @classmethod
    def of(cls, rows: Rows) -> RowFacts:
        known = _FACTS.get(id(rows))
        if known is None or known.rows is not rows:
            _FACTS.clear()
            known = _FACTS[id(rows)] = cls(
                rows,
                tuple(min(row, default=0) for row in rows),
                tuple(max(row, default=0) for row in rows),
                tuple(index for index, row in enumerate(rows) if tuple(sorted(set(row))) != row),
            )
        return known


_FACTS: dict[int, RowFacts] = {}


@rule("G107", why="rows that are missing would be empty, and rows that are too many would be ignored")
def block_rows_of_other_length(case: Case) -> Iterator[Violation]:
    """The block list does not have one row per block of queries.

    What: `mask.rows` has seqlen_q / block_size rows, rounded up.

    Why: A list for another length or block size looks valid and masks the wrong tokens. 1000 queries in blocks of 128
    make 8 rows, the last with 104 queries.

    Fix: Rebuild the list for this length, or state the block size that it was built with.
    """
    problem = case.problem
    mask = problem.mask
    if mask.pattern != "blocks" or mask.rows is None or mask.block_size is None or min(mask.block_size) < 1:
        return
    size, needed = mask.block_size[0], -(-problem.seqlen_q // mask.block_size[0])
    if len(mask.rows) != needed:
        fixes = _block_sizes(problem, len(mask.rows))
        made = f"{problem.seqlen_q} queries in blocks of {size} make {needed}"
        message = f"rows lists {len(mask.rows)} blocks of queries; {made}"
        yield Violation("mask.rows", message, fixes, f"list {needed} rows")


@rule("G108", why="the kernel would read keys that do not exist")
def block_out_of_range(case: Case) -> Iterator[Violation]:
    """The block list names a block of keys that does not exist.

    What: Every entry of `mask.rows` is at least 0 and below seqlen_k / block_size, rounded up.

    Why: Kernels trust the list: block 8 of 8 blocks of keys is read from memory behind the tensor.

    Fix: Blocks count from 0: 1024 keys in blocks of 128 are blocks 0 to 7.
    """
    problem = case.problem
    mask = problem.mask
    if mask.pattern != "blocks" or mask.rows is None or mask.block_size is None or min(mask.block_size) < 1:
        return
    blocks = -(-problem.seqlen_k // mask.block_size[1])
    facts = RowFacts.of(mask.rows)
    outside = [index for index, highest in enumerate(facts.highest) if highest >= blocks or facts.lowest[index] < 0]
    exist = f"{problem.seqlen_k} keys in blocks of {mask.block_size[1]} are blocks 0 to {blocks - 1}"
    for index in outside[:MOST_ROWS]:
        row = mask.rows[index]
        wrong = facts.lowest[index] if facts.lowest[index] < 0 else facts.highest[index]
        kept = tuple(each for each in row if 0 <= each < blocks)
        message = f"rows[{index}] lists block {wrong}; {exist}"
        yield _fault(index, message, kept, "list blocks that exist")
    yield from _more(outside, "list blocks that do not exist")


@rule("G109", why="kernels walk the list once, in order: a repeated block counts twice")
def block_row_out_of_order(case: Case) -> Iterator[Violation]:
    """A row of the block list is not in ascending order, or names a block twice.

    What: Each of `mask.rows` ascends, with no repetition.

    Why: A block that is listed twice has twice its weight in the softmax. Kernels that mask the keys behind the end
    treat the last listed block as the last of the sequence.

    Fix: [0, 3, 3, 1] -> [0, 1, 3].
    """
    mask = case.problem.mask
    if mask.pattern != "blocks" or mask.rows is None:
        return
    disordered = RowFacts.of(mask.rows).disordered
    for index in disordered[:MOST_ROWS]:
        row = mask.rows[index]
        ordered = tuple(sorted(set(row)))
        fault = "names a block twice" if len(ordered) < len(row) else "is not in ascending order"
        yield _fault(index, f"rows[{index}] {fault}", ordered, "sort it")
    yield from _more(disordered, "are not in ascending order")


def _fault(index: int, message: str, right: tuple[int, ...], advice: str) -> Violation:
    field = f"mask.rows[{index}]"
    short = len(right) <= MOST_BLOCKS
    return Violation(field, message, (Fix(field, right),) if short else (), "" if short else advice)


def _more(indices: Sequence[int], fault: str) -> Iterator[Violation]:
    """One violation for all rows that are not reported one by one."""
    if len(indices) > MOST_ROWS:
        message = f"{len(indices) - MOST_ROWS} more rows {fault}, the last of them rows[{indices[-1]}]"
        yield Violation("mask.rows", message, advice="rebuild the list")


def fitting_sizes(count: int, length: int) -> tuple[int, int] | None:
    """The smallest and the largest block size that cuts ``length`` into ``count`` blocks."""
    smallest = -(-length // count)
    if -(-length // smallest) != count:
        return None
    largest = length if count == 1 else (length - 1) // (count - 1)
    return smallest, largest


def _block_sizes(problem: Problem, count: int) -> tuple[Fix, ...]:
    sizes = fitting_sizes(count, problem.seqlen_q) if count else None
    if sizes is None or problem.mask.block_size is None:
        return ()
    return (Fix("mask.block_size", (sizes[0], problem.mask.block_size[1])),)
