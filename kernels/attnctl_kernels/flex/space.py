"""What `tune` tries: powers of two around the tiles that inductor has in its tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from attnctl_kernels.contract import Problem, SparseBlock
from attnctl_kernels.flex import tiles

GPU_BLOCKS: tuple[SparseBlock, ...] = ((64, 64), (128, 128), (256, 256))
CPU_BLOCKS: tuple[SparseBlock, ...] = tuple(itertools.product((32, 64, 128), (64, 128, 256)))


def forward(problem: Problem) -> Mapping[str, Sequence[Any]]:
    if problem.seqlen_q < tiles.DECODE_BELOW:
        return {"BLOCK_N": (32, 64, 128), "num_warps": (2, 4, 8), "num_stages": (1, 2, 3)}
    return {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
        **_blocks(problem, GPU_BLOCKS),
    }


def backward(problem: Problem) -> Mapping[str, Sequence[Any]]:
    return {
        "BLOCK_M1": (32, 64, 128),
        "BLOCK_N1": (64, 128),
        "BLOCK_M2": (64, 128),
        "BLOCK_N2": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3),
        **_blocks(problem, GPU_BLOCKS),
    }


def on_cpu(problem: Problem) -> Mapping[str, Sequence[Any]]:
    """The C++ kernel has no tile but the sparse block."""
    return _blocks(problem, CPU_BLOCKS)


def _blocks(problem: Problem, blocks: Sequence[SparseBlock]) -> Mapping[str, Sequence[SparseBlock]]:
    """Those that are not twice as long as the sequence; a call without a mask has none."""
    if problem.mask.pattern == "dense":
        return {}
    longest = 2 * problem.seqlen_q, 2 * problem.seqlen_k
    fitting = tuple(block for block in blocks if block[0] < longest[0] and block[1] < longest[1])
    return {"sparse_block": fitting or (blocks[0],)}
