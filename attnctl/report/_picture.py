"""The mask as a picture of blocks, and what the tiles compute against what the mask needs."""

from __future__ import annotations

from dataclasses import dataclass

from attnctl.errors import UsageError
from attnctl_kernels.contract import Case, SparseBlock

GLYPHS = ("·", "▒", "█")  # in the order of masks.EMPTY, PARTIAL, FULL
ASCII_GLYPHS = (".", "+", "#")
MAX_ROWS = 32
MAX_BLOCKS = 1 << 28  # one byte each, all at once
OPERATIONS = {"forward": (1, 1), "backward": (3, 2)}  # products per pair over head_dim, over head_dim_v


@dataclass(frozen=True, slots=True)
class Coverage:
    """Block counts, and operations (2 per multiply-add) over all batches and heads."""

    block: SparseBlock
    empty: int
    partial: int
    full: int
    visible_pairs: int  # of one head
    executed_pairs: int
    needed_flop: int
    executed_flop: int
    pair_density: float

    @property
    def blocks(self) -> int:
        return self.empty + self.partial + self.full

    @property
    def block_density(self) -> float:
        return (self.partial + self.full) / self.blocks

    @property
    def waste(self) -> float:
        """Share of the executed operations that the mask throws away."""
        return 1 - self.needed_flop / self.executed_flop if self.executed_flop else 0.0


def coverage(case: Case, block: SparseBlock) -> Coverage:
    """Count blocks and operations.

    Raises:
        UsageError: there are too many blocks to count.
    """
    import numpy as np  # noqa: PLC0415 - only `show` needs it

    from attnctl_kernels import masks  # noqa: PLC0415

    problem = case.problem
    blocks = -(-problem.seqlen_q // block[0]) * -(-problem.seqlen_k // block[1])
    if blocks > MAX_BLOCKS:
        raise UsageError(
            f"{problem.slug}: {blocks} blocks of {block[0]} x {block[1]} "
            f"are more than the {MAX_BLOCKS} that show counts",
            "--seq-len shows the profile at a shorter length",
        )
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block)
    empty, partial, full = (int(np.count_nonzero(classes == kind)) for kind in (masks.EMPTY, masks.PARTIAL, masks.FULL))
    visible = masks.count_visible(problem.mask, problem.seqlen_q, problem.seqlen_k)
    executed = (partial + full) * block[0] * block[1]
    over_qk, over_v = OPERATIONS[case.pass_name]
    per_pair = 2 * (over_qk * problem.head_dim + over_v * problem.head_dim_v)
    per_pair *= problem.batch_size * problem.num_heads_q
    return Coverage(
        block=block,
        empty=empty,
        partial=partial,
        full=full,
        visible_pairs=visible,
        executed_pairs=executed,
        needed_flop=visible * per_pair,
        executed_flop=executed * per_pair,
        pair_density=visible / (problem.seqlen_q * problem.seqlen_k),
    )


def picture(case: Case, block: SparseBlock, width: int, glyphs: tuple[str, ...] = GLYPHS) -> tuple[list[str], int, int]:
    """Lines of at most ``width`` characters, and how many blocks down and across one cell stands for.

    A cell that holds several blocks is full or empty only where all of them are.
    """
    from attnctl_kernels.masks import classify  # noqa: PLC0415

    problem, (block_q, block_kv) = case.problem, block
    down = _scale(problem.seqlen_q, block_q, MAX_ROWS)
    across = _scale(problem.seqlen_k, block_kv, max(1, width // 2))
    cells = classify(problem.mask, problem.seqlen_q, problem.seqlen_k, block_q * down, block_kv * across)
    # Two characters per cell: a character is about twice as high as it is wide.
    return ["".join(glyphs[kind] * 2 for kind in row) for row in cells.tolist()], down, across


def _scale(length: int, block: int, most: int) -> int:
    """The least number of blocks per cell with at most ``most`` cells."""
    return max(1, -(-length // (block * most)))
