"""Shared memory of the Triton kernels: an estimate, because the compiler decides.

The forward estimate is that of two users' reports to the byte (head_dim 192/128, bfloat16, 64 x 64, 3 stages: 139776;
head_dim 1024, float32, 32 x 16, 3 stages: 395520). `least` is the part without which no launch was ever seen.
"""

from __future__ import annotations

from typing import NamedTuple

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Problem, Resource
from attnctl_kernels.flex import options, tiles

ROW_BYTES = 8  # per row of the tile: maximum and sum


class SharedMemory(NamedTuple):
    least: int  # operands that stay and those that stream
    usual: int  # and the score tile on its way from one product to the next


def head_dims(problem: Problem) -> int:
    """Elements of a row of K and of V together, as Triton stores them."""
    return tiles.next_power_of_two(problem.head_dim) + tiles.next_power_of_two(problem.head_dim_v)


def forward_smem(problem: Problem, tile: tiles.ForwardTile) -> SharedMemory:
    rows = tile.block_m * tiles.next_power_of_two(problem.head_dim)
    streamed = max(tile.num_stages - 1, 1) * tile.block_n * head_dims(problem)
    least = (rows + streamed) * problem.element_bytes
    scores = tile.block_m * tile.block_n * problem.element_bytes
    return SharedMemory(least, least + scores + ROW_BYTES * tile.block_m)


def backward_smem(problem: Problem, tile: tiles.BackwardTile) -> SharedMemory:
    """Of dK and dV, which keep N1 keys and stream M1 queries, and of dQ the other way round."""
    buffers = max(tile.num_stages - 1, 1)
    elements = max(tile.block_n1 + buffers * tile.block_m1, tile.block_m2 + buffers * tile.block_n2)
    needed = elements * head_dims(problem) * problem.element_bytes
    return SharedMemory(0, needed)


def table(case: Case) -> tuple[Resource, ...]:
    forward, backward = options.forward_tile(case), options.backward_tile(case)
    if case.arch not in ARCHES:
        return ()
    limit = ARCHES[case.arch].smem_bytes
    if forward and min(forward) > 0:
        return (Resource("shared memory (estimate)", forward_smem(case.problem, forward).usual, limit, "bytes"),)
    if backward and min(backward) > 0:
        return (Resource("shared memory (estimate)", backward_smem(case.problem, backward).usual, limit, "bytes"),)
    return ()
