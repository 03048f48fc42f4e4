"""The tiles that flash-attn-4 4.0.0b36 picks by itself, from ``flash_attn/cute/interface.py``.

A block-sparse call carries its mask as an element predicate, and the kernel then is neither causal nor local: causal
and windowed masks get the tiles of a full one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from attnctl_kernels.contract import Config, Problem, SparseBlock

GRANULE = 16  # rows and columns of every tile: the K of one matrix instruction
WARP_GROUP_ROWS = 64
SM90_TILES_M = (64, 128, 192)
MAX_TILE_N = 256  # columns of a wgmma
BLACKWELL = ("sm_100", "sm_103", "sm_110")
AMPERE = ("sm_80", "sm_86", "sm_89")


@dataclass(frozen=True, slots=True)
class ForwardTile:
    tile_m: int
    tile_n: int
    mma_pv_is_rs: bool = True  # P stays in registers for P·V
    intra_wg_overlap: bool = True  # softmax of one tile runs during the products of the next


@dataclass(frozen=True, slots=True)
class BackwardTile:
    tile_m: int
    tile_n: int


def padded(head_dim: int) -> int:
    """The kernel's own head dimension."""
    return -(-head_dim // GRANULE) * GRANULE


def is_sparse(problem: Problem) -> bool:
    """Whether the mask runs as block lists."""
    return problem.mask.pattern != "dense"


def q_stage(problem: Problem, arch: str | None, *, packs: bool = True) -> int:
    """Query tiles per program: two on Blackwell, unless the rows fit one or O would not fit twice."""
    rows = problem.seqlen_q * (max(1, problem.num_heads_q // problem.num_heads_kv) if packs else 1)
    return 2 if arch in BLACKWELL and rows > 128 and problem.head_dim_v != 256 else 1


def forward_tile(problem: Problem, arch: str | None, sparse_block: SparseBlock | None) -> ForwardTile:
    """The kernel's choice, fitted to the sparse block where it does that."""
    if arch in AMPERE or (arch == "sm_120" and problem.head_dim > 64):
        return ForwardTile(128, 64)
    if arch != "sm_90":
        return ForwardTile(128, 128)
    tile = sm90_forward_tile(problem.head_dim, problem.head_dim_v, sparse_block[0] if sparse_block else None)
    return _fitted(tile, sparse_block) if sparse_block else tile


def sm90_forward_tile(head_dim: int, head_dim_v: int, block_q: int | None) -> ForwardTile:
    """Before it is fitted to sparse blocks; 192 rows only where they divide the query block."""
    if head_dim <= 96:
        in_registers = head_dim <= 64
        if block_q is not None and block_q % 192:
            return ForwardTile(128, 128, in_registers)
        return ForwardTile(192, 128 if in_registers else 144, in_registers)
    if head_dim <= 128:
        return ForwardTile(128, 128)
    if head_dim <= 192:
        return ForwardTile(128, 128 if head_dim_v <= 128 else 112)
    return ForwardTile(128, 80)


def _fitted(tile: ForwardTile, sparse_block: SparseBlock) -> ForwardTile:
    """Tiles shrink to the sparse block, never grow; a block that still does not match is refused later."""
    block_q, block_kv = sparse_block
    shrink_m = block_q % tile.tile_m and block_q % WARP_GROUP_ROWS == 0
    shrink_n = block_kv < tile.tile_n and block_kv % GRANULE == 0
    return ForwardTile(
        WARP_GROUP_ROWS if shrink_m else tile.tile_m,
        block_kv if shrink_n else tile.tile_n,
        tile.mma_pv_is_rs,
        tile.intra_wg_overlap,
    )


def backward_tile(problem: Problem, arch: str | None, sparse_block: SparseBlock | None) -> BackwardTile:
    """The kernel's choice. With block lists of unstated size it assumes query blocks of 128 (Hopper)."""
    if arch != "sm_90":
        return BackwardTile(64, 64) if arch == "sm_120" else BackwardTile(128, 128)
    block_q = sparse_block[0] if sparse_block else 128 if is_sparse(problem) else None
    tile_n = 128 if problem.head_dim <= 128 else 96 if problem.head_dim <= 192 else 48 if block_q is None else 64
    if problem.head_dim <= 64:
        return BackwardTile(128, tile_n)
    if 96 < problem.head_dim <= 128 and (block_q is None or block_q % 80 == 0):
        return BackwardTile(80, tile_n)
    return BackwardTile(64, tile_n)


def kernel_key(problem: Problem, config: Config, *, packs: bool) -> Hashable:
    """What flash-attn-4's own key has of a problem: of its lengths, batch and heads only whether there are several.

    Lengths count in tiles. The mask is part of the device code, with all its numbers.
    """
    rows = problem.seqlen_q * (problem.num_heads_q // problem.num_heads_kv if packs else 1)
    tile_m, tile_n = int(config["tile_m"]), int(config["tile_n"])
    return (
        (problem.dtype, problem.head_dim, problem.head_dim_v, problem.num_heads_q // problem.num_heads_kv),
        (problem.mask, problem.seqlen_k - problem.seqlen_q if is_sparse(problem) else 0),
        tuple(min(3, -(-length // tile)) for length, tile in ((rows, tile_m), (problem.seqlen_k, tile_n))),
        (min(2, problem.batch_size), min(2, problem.num_heads_kv)),
    )


def subtile_factor(tile: BackwardTile, arch: str | None, sparse_block: SparseBlock | None) -> int:
    """Query tiles per query block of the backward pass; of unstated size, blocks of 128 on sm_90 and two tiles else."""
    if sparse_block is None and arch != "sm_90":
        return 2
    return (sparse_block[0] if sparse_block else 128) // tile.tile_m or 1


def legal_block_kv(problem: Problem, block_q: int) -> tuple[int, ...]:
    """The key blocks that the kernel's own forward tile on sm_90 can match."""
    widest = sm90_forward_tile(problem.head_dim, problem.head_dim_v, block_q).tile_n
    return tuple(range(GRANULE, widest + 1, GRANULE))
