"""What the kernels for sm_100, sm_103 and sm_110 take, from ``flash_fwd_sm100.py`` and ``flash_bwd_sm100.py``."""

from __future__ import annotations

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Problem, Resource
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import ROWS, Call

SMEM_LIMIT = ARCHES["sm_100"].smem_bytes
TMEM_COLUMNS = ARCHES["sm_100"].tmem_columns
PLANNED_BYTES = 224 * 1024  # what the kernel deals out; the rest is for barriers and statistics
OVERHEAD_BYTES = 2048
MOST_STAGES = 32


def tmem_columns(problem: Problem, q_stage: int, tile_n: int) -> int:
    """Two tiles of scores, and one output per query stage."""
    return 2 * tile_n + q_stage * tiles.padded(problem.head_dim_v)


def q_and_o_bytes(call: Call) -> int:
    problem = call.case.problem
    dim, dim_v = tiles.padded(problem.head_dim), tiles.padded(problem.head_dim_v)
    splits = call.num_splits > 1
    rows = call.q_stage * ROWS
    q = rows * dim * problem.element_bytes
    o = rows * (128 if splits and dim_v == 256 else dim_v) * (4 if splits else 2)
    share = (dim == 192 and dim_v >= 64) or dim == 256 or (dim_v >= 128 and splits)
    return max(q, o) if share else q + o


def stage_bytes(call: Call, tile_n: int) -> int:
    """One tile of keys or values; a pair of CTAs halves it."""
    problem = call.case.problem
    widest = max(tiles.padded(problem.head_dim), tiles.padded(problem.head_dim_v))
    return tile_n * widest * problem.element_bytes // (2 if call.pairs else 1)


def uneven_smem_bytes(call: Call, tile_n: int) -> int | None:
    """At head dimensions 192 and 128 with room for two stages, where the kernel keeps [K, V, K]; None elsewhere."""
    problem = call.case.problem
    if (tiles.padded(problem.head_dim), tiles.padded(problem.head_dim_v)) != (192, 128) or tile_n < 1:
        return None
    per_column = problem.element_bytes / (2 if call.pairs else 1)
    if (PLANNED_BYTES - q_and_o_bytes(call)) // max(1, int(tile_n * 192 * per_column)) != 2:
        return None
    return q_and_o_bytes(call) + int(tile_n * (2 * 192 + 128) * per_column) + OVERHEAD_BYTES


def forward_resources(call: Call) -> tuple[Resource, ...]:
    stages = min((PLANNED_BYTES - q_and_o_bytes(call)) // stage_bytes(call, call.tile_n), MOST_STAGES)
    used = uneven_smem_bytes(call, call.tile_n)
    if used is None:
        used = q_and_o_bytes(call) + max(stages, 0) * stage_bytes(call, call.tile_n) + OVERHEAD_BYTES
    else:
        stages = 3
    columns = tmem_columns(call.case.problem, call.q_stage, call.tile_n)
    return (
        Resource("shared memory", used, SMEM_LIMIT, "bytes"),
        Resource("tensor memory", columns, TMEM_COLUMNS, "columns"),
        Resource("stages of K and V", max(stages, 0), MOST_STAGES, "stages"),
    )


def backward_resources(call: Call) -> tuple[Resource, ...]:
    """S and dV beside dP and dK; dQ reuses the room of dP, or the end of S where two CTAs share the keys."""
    problem = call.case.problem
    dim, dim_v = (-(-each // 32) * 32 for each in (problem.head_dim, problem.head_dim_v))
    if max(dim, dim_v) > 128:
        return ()
    columns = ROWS + dim_v + ROWS + dim
    return (Resource("tensor memory", columns, TMEM_COLUMNS, "columns"),)
