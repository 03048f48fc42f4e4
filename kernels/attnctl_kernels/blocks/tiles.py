"""Which tiles of a problem the kernel visits: shared by what runs them and by what predicts their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnctl_kernels.contract import Problem, SparseBlock

if TYPE_CHECKING:
    from attnctl_kernels.masks import Classes


def classify(problem: Problem, tile: SparseBlock, sparse_block: SparseBlock | None) -> Classes:
    """The class of every tile. Tiles inside a sparse block have the block's class: a list says no more than that."""
    from attnctl_kernels import masks  # noqa: PLC0415 - brings NumPy, which `validate` does without

    block_q, block_kv = sparse_block or tile
    tile_q, tile_kv = tile
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, block_q, block_kv)
    fine = classes.repeat(block_q // tile_q, axis=0).repeat(block_kv // tile_kv, axis=1)
    return fine[: -(-problem.seqlen_q // tile_q), : -(-problem.seqlen_k // tile_kv)]
