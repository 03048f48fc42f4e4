"""A rough time of one candidate on a GPU, to measure the promising ones first. Only its order matters."""

from __future__ import annotations

from functools import lru_cache

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Problem, SparseBlock
from attnctl_kernels.flex import options, resources, tiles
from attnctl_kernels.flex.resources import ROWS_PER_GROUP, WARPS_PER_GROUP, Loop

# Per SM and cycle: operations of the tensor cores, exponentials, bytes from L2. Orders of magnitude of an H100.
TENSOR_OPS = 4096
EXPONENTIALS = 16
L2_BYTES = 64
MASK_CYCLES = 4  # per element of a partial block and thread: predicate and select
STEP_CYCLES = 150  # of a loop step, whatever the tile
TILE_CYCLES = 1500  # prologue and epilogue of a program
DIVIDED = 1.5  # of a step in which warp groups divide columns: they exchange maxima, sums and weights
USABLE_REGISTERS = 200  # of 255, for sums and scores


def predicted_cost(case: Case) -> float:
    """Cycles of the busiest SM; 0 where no Triton kernel of ours runs."""
    problem, tile = case.problem, options.forward_tile(case) or options.backward_tile(case)
    if tile is None:
        return 0.0
    work = sum(_loop(case, each, tile.num_warps) for each in resources.loops(problem, tile))
    if isinstance(tile, tiles.ForwardTile):
        work += -(-problem.seqlen_q // tile.block_m) * TILE_CYCLES
    return _on_sms(case, work * problem.num_heads_q, resources.usual(problem, tile, case.arch), tile)


def _loop(case: Case, loop: Loop, warps: int) -> float:
    """Cycles of all steps of one head."""
    problem = case.problem
    steps, masked = _steps(problem, loop.tile, case.sparse_block)
    elements = loop.tile[0] * loop.tile[1]
    dims = loop.products[0] * problem.head_dim + loop.products[1] * problem.head_dim_v
    streamed = min(loop.tile) * resources.head_dims(problem) * problem.element_bytes
    step = max(2 * elements * dims / TENSOR_OPS, streamed / L2_BYTES) + elements / EXPONENTIALS / 2 + STEP_CYCLES
    step *= max(1.0, loop.registers(warps) / USABLE_REGISTERS) ** 2
    if loop.rows < ROWS_PER_GROUP * (warps // WARPS_PER_GROUP):
        step *= DIVIDED
    return steps * step + masked * elements * MASK_CYCLES / (32 * warps)


def _on_sms(case: Case, cycles: float, smem: int, tile: tiles.ForwardTile | tiles.BackwardTile) -> float:
    """Two programs on an SM hide each other's waits, and so do stages."""
    assert case.arch is not None  # else there is no tile
    arch = ARCHES[case.arch]
    resident = min(2, max(1, arch.smem_bytes // max(smem, 1)))
    waits = 1 + 0.5 / resident + 0.3 / tile.num_stages
    return cycles * waits * case.problem.batch_size / (arch.num_sms or 1)


@lru_cache(maxsize=1024)
def _steps(problem: Problem, tile: SparseBlock, sparse_block: SparseBlock | None) -> tuple[float, float]:
    """Tiles that are visited for one head, and those of them that are masked element by element."""
    from attnctl_kernels import masks  # noqa: PLC0415 - brings NumPy, which only `tune` needs

    block = sparse_block or tile
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block)
    scale = block[0] / tile[0] * block[1] / tile[1]
    return float((classes != masks.EMPTY).sum()) * scale, float((classes == masks.PARTIAL).sum()) * scale
