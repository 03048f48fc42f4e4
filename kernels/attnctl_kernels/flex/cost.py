"""A rough time of one candidate on a GPU, to measure the promising ones first. Only its order matters."""

from __future__ import annotations

from functools import lru_cache

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Problem, SparseBlock
from attnctl_kernels.flex import options, resources, tiles

# Per SM and cycle: operations of the tensor cores, exponentials, bytes from L2. Orders of magnitude of an H100.
TENSOR_OPS = 4096
EXPONENTIALS = 16
L2_BYTES = 64
MASK_CYCLES = 4  # per element of a partial block and thread: predicate and select
STEP_CYCLES = 150  # of a loop step, whatever the tile
TILE_CYCLES = 1500  # prologue and epilogue of a program
ROWS_PER_GROUP = 64  # of a warp group's products; groups without rows of their own divide the columns
DIVIDED = 1.5  # what a step costs then: the groups exchange maxima, sums and weights in each
THREAD_REGISTERS = 200  # of 255, for what the accumulators may take


def predicted_cost(case: Case) -> float:
    """Cycles of the busiest SM; 0 where no Triton kernel of ours runs."""
    forward, backward = options.forward_tile(case), options.backward_tile(case)
    if forward:
        shape = (forward.block_m, forward.block_n)
        smem = resources.usual(case.problem, forward, case.arch)
        programs = -(-case.problem.seqlen_q // forward.block_m) * case.problem.num_heads_q
        work = _loop(case, shape, (1, 1), warps=forward.num_warps, rows=forward.block_m)
        return _on_sms(case, work * case.problem.num_heads_q + programs * TILE_CYCLES, smem, forward)
    if backward:
        smem = resources.usual(case.problem, backward, case.arch)
        dkdv = (backward.block_m1, backward.block_n1)
        dq = (backward.block_m2, backward.block_n2)
        work = _loop(case, dkdv, (2, 2), warps=backward.num_warps, rows=backward.block_n1, sums=2)
        work += _loop(case, dq, (2, 1), warps=backward.num_warps, rows=backward.block_m2)
        return _on_sms(case, work * case.problem.num_heads_q, smem, backward)
    return 0.0


def _loop(case: Case, tile: SparseBlock, products: tuple[int, int], *, warps: int, rows: int, sums: int = 1) -> float:
    """Cycles of all steps of one head.

    ``products`` counts those of head_dim and of head_dim_v per step, ``sums`` those that keep ``rows`` in registers.
    """
    problem = case.problem
    steps, masked = _steps(problem, tile, case.sparse_block)
    elements = tile[0] * tile[1]
    dims = products[0] * problem.head_dim + products[1] * problem.head_dim_v
    streamed = min(tile) * resources.head_dims(problem) * problem.element_bytes
    step = max(2 * elements * dims / TENSOR_OPS, streamed / L2_BYTES) + elements / EXPONENTIALS / 2 + STEP_CYCLES
    registers = (sums * rows * problem.head_dim_v + elements) / (32 * warps)
    step *= max(1.0, registers / THREAD_REGISTERS) ** 2
    if rows < ROWS_PER_GROUP * (warps // 4):
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
