"""Shared memory of the Triton kernels: an estimate, because the compiler decides.

On sm_90 a stage is a buffer, and scores stay in registers: that is what Triton 3.6 reported for all 62 forward tiles of
a sweep at head_dim 128, to the byte, and for 64 backward ones to 512 bytes. Elsewhere one stage less is buffered, and
scores pass through: two users' reports agree to the byte (head_dim 192/128, bfloat16, 64 x 64, 3 stages: 139776;
head_dim 1024, float32, 32 x 16, 3 stages: 395520). `least` is the part without which no launch was ever seen.
"""

from __future__ import annotations

from typing import NamedTuple

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Problem, Resource, SparseBlock
from attnctl_kernels.flex import options, tiles

WARPS_PER_GROUP = 4
ROWS_PER_GROUP = 64  # of a product of sm_90
THREAD_REGISTERS = 256  # of which one is always zero
ROW_BYTES = 8  # per row of the tile: maximum and sum; backward, LSE and delta


class SharedMemory(NamedTuple):
    least: int  # operands that stay and those that stream
    usual: int  # and the score tile on its way from one product to the next


class Loop(NamedTuple):
    """What one loop of a kernel holds while it streams the other side."""

    rows_name: str  # the option that says how many rows stay
    rows: int
    tile: SparseBlock  # queries and keys of a step
    products: tuple[int, int]  # of head_dim and of head_dim_v, per step
    sums: int  # columns of what is added up for each row

    def registers(self, warps: int) -> float:
        """Per thread, for sums and for the scores of a step."""
        scores = self.tile[0] * self.tile[1]
        return (self.rows * self.sums + scores) / (32 * warps)


def loops(problem: Problem, tile: tiles.ForwardTile | tiles.BackwardTile) -> tuple[Loop, ...]:
    dim, dim_v = problem.head_dim, problem.head_dim_v
    if isinstance(tile, tiles.ForwardTile):
        return (Loop("BLOCK_M", tile.block_m, (tile.block_m, tile.block_n), (1, 1), dim_v),)
    return (
        Loop("BLOCK_N1", tile.block_n1, (tile.block_m1, tile.block_n1), (2, 2), dim + dim_v),
        Loop("BLOCK_M2", tile.block_m2, (tile.block_m2, tile.block_n2), (2, 1), dim),
    )


def head_dims(problem: Problem) -> int:
    """Elements of a row of K and of V together, as Triton stores them."""
    return tiles.next_power_of_two(problem.head_dim) + tiles.next_power_of_two(problem.head_dim_v)


def is_buffered_whole(problem: Problem, arch: str | None) -> bool:
    """Whether every stage has a buffer: with the asynchronous products of sm_90, on operands that are not padded."""
    dims = problem.head_dim, problem.head_dim_v
    return arch == "sm_90" and problem.dtype != "float32" and all(map(tiles.is_power_of_two, dims))


def forward_smem(problem: Problem, tile: tiles.ForwardTile, arch: str | None) -> SharedMemory:
    whole = is_buffered_whole(problem, arch)
    rows = tile.block_m * tiles.next_power_of_two(problem.head_dim)
    buffers = max(tile.num_stages - (not whole), 1)
    least = (rows + buffers * tile.block_n * head_dims(problem)) * problem.element_bytes
    if whole:
        return SharedMemory(least, least)
    scores = tile.block_m * tile.block_n * problem.element_bytes
    return SharedMemory(least, least + scores + ROW_BYTES * tile.block_m)


def backward_smem(problem: Problem, tile: tiles.BackwardTile, arch: str | None) -> SharedMemory:
    """Of dK and dV, which keep N1 keys and stream M1 queries, LSE and delta, and of dQ the other way round."""
    whole, row = is_buffered_whole(problem, arch), head_dims(problem) * problem.element_bytes
    buffers = max(tile.num_stages - (not whole), 1)
    dkdv = (tile.block_n1 + buffers * tile.block_m1) * row
    if whole:  # a step's LSE and delta are waited for ahead of its products: one buffer less
        dkdv += (tile.num_stages - 1) * tile.block_m1 * ROW_BYTES
    dq = (tile.block_m2 + buffers * tile.block_n2) * row
    return SharedMemory(0, max(dkdv, dq))


def usual(problem: Problem, tile: tiles.ForwardTile | tiles.BackwardTile, arch: str | None) -> int:
    """Bytes that the kernel of either pass takes."""
    if isinstance(tile, tiles.ForwardTile):
        return forward_smem(problem, tile, arch).usual
    return backward_smem(problem, tile, arch).usual


def table(case: Case) -> tuple[Resource, ...]:
    tile = options.forward_tile(case) or options.backward_tile(case)
    if case.arch not in ARCHES or tile is None or min(tile) < 1:
        return ()
    used = usual(case.problem, tile, case.arch)
    return (Resource("shared memory (estimate)", used, ARCHES[case.arch].smem_bytes, "bytes"),)
