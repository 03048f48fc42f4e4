"""FLEX-029: options that promise something about the mask."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.flex import options
from attnctl_kernels.rule import Fix, Violation, rule


@rule("FLEX-029", why="the kernel leaves out what would catch the case, and returns NaN or wrong numbers")
def promise_about_the_mask_broken(case: Case) -> Iterator[Violation]:
    """An option promises something that the mask does not keep.

    What: `BLOCKS_ARE_CONTIGUOUS: true` needs lists without gaps: the full and the partial blocks of a row each follow
    one another. `ROWS_GUARANTEED_SAFE: true` needs a visible key for every query.

    Why: With the first, the kernel steps to the next block instead of reading the list. Full blocks have a list of
    their own: a window of 1024 in blocks of 128 leaves block i - 8 and block i in the list of partial blocks, and the
    kernel computes i - 8 and i - 7 instead. With the second, a row without keys is 0/0. Nothing checks either.

    Fix: Leave the option out. A causal mask keeps both promises, where there are as many queries as keys.
    """
    if options.kernel(case) not in ("triton", "decode"):
        return
    block = options.sparse(case)
    reason = _gap(case, block) if block else ""
    if reason and options.switch(case, "BLOCKS_ARE_CONTIGUOUS"):
        name = "config.BLOCKS_ARE_CONTIGUOUS"
        yield Violation(name, f"the lists have gaps: {reason}", (Fix(name, value=False),))
    blind = _blind(case)
    if blind and options.switch(case, "ROWS_GUARANTEED_SAFE"):
        name = "config.ROWS_GUARANTEED_SAFE"
        yield Violation(name, f"{blind} see no key", (Fix(name, value=False),))


def _gap(case: Case, block: SparseBlock) -> str:
    """Why the partial blocks of some row do not follow one another; only what is sure."""
    mask, length = case.problem.mask, case.problem.seqlen_k
    rows, keys = block
    if mask.pattern == "sliding_window" and mask.window is not None:
        between = rows + (keys if rows == keys else 2 * keys)  # a window that long holds a full block
        if between <= mask.window and mask.window + rows + keys <= length:
            return f"a window of {mask.window} has full blocks between its two partial ones"
    history = mask.history_len
    if mask.pattern == "history_candidate" and history and history % keys and length > (history // keys + 2) * keys:
        return f"the history ends inside block {history // keys}, far from the block of a candidate"
    if mask.pattern == "blocks" and mask.rows and mask.block_size == block:
        for index, row in enumerate(mask.rows):
            if any(after - before != 1 for before, after in pairwise(row)):
                return f"row {index} of the mask skips blocks"
    return ""


def _blind(case: Case) -> str:
    problem = case.problem
    mask, early = problem.mask, problem.seqlen_q - problem.seqlen_k
    if mask.pattern == "blocks" and mask.rows:
        return next((f"the queries of block {index}" for index, row in enumerate(mask.rows) if not row), "")
    backward_only = mask.pattern in ("causal", "sliding_window") or (
        mask.pattern == "prefix_lm" and not mask.prefix_len
    )
    return f"the first {early} queries" if backward_only and early > 0 else ""
