"""A rough time for one backward candidate on sm_90, to measure the promising ones first. Only its order matters."""

from __future__ import annotations

from attnctl_kernels.contract import Config, Problem, SparseBlock
from attnctl_kernels.fa4 import cost, resources
from attnctl_kernels.fa4.backward import Product, Sm90Backward, sm90_dims, sm90_products, sm90_registers

SMEM_BYTES = 128  # per SM and cycle
DQ_BYTES = 8  # per element and visit: dQ in float32 goes through shared memory to be added up in global memory
EXPOSED = 0.5  # share of the softmax that no product hides
DS_WAIT_CYCLES = 200  # warp groups meet before they overwrite a single stage of P and dS
LOAD_WAIT_CYCLES = 400  # a tile of Q or dO in a single stage is loaded while nothing is computed
ONE_GROUP_DQ = 1.1  # of the time of a visit, where the other warp group has no part of dQ


def predicted_cost(problem: Problem, config: Config, sparse_block: SparseBlock | None) -> float:
    """Cycles: products or what they read from shared memory, softmax, waits, partial blocks, and spilled registers."""
    chosen = Sm90Backward.of(config)
    dim, dim_v = sm90_dims(problem, chosen)
    elements = chosen.tile_m * chosen.tile_n
    products = 2.0 * elements * (3 * dim + 2 * dim_v) / cost.TENSOR_OPS
    per_visit = max(products, _traffic(problem, chosen) / SMEM_BYTES)
    per_visit += elements / cost.EXPONENTIALS * EXPOSED + cost.VISIT_CYCLES
    per_visit += DS_WAIT_CYCLES * (chosen.num_stages_PdS == 1)
    per_visit += LOAD_WAIT_CYCLES * ((chosen.num_stages_Q == 1) + (chosen.num_stages_dO == 1))
    per_visit *= ONE_GROUP_DQ if chosen.dQ_single_wg else 1.0
    over = sm90_registers(problem, chosen) / resources.REGISTER_CAP[chosen.num_wg]
    per_visit *= max(1.0, over) ** 2
    visits, masked = cost.tile_visits(problem, chosen.tile_m, chosen.tile_n, sparse_block)
    per_mask = elements * cost.MASK_CYCLES / 128 / chosen.num_wg
    tiles = -(-problem.seqlen_k // chosen.tile_n)
    cycles = visits * per_visit + masked * per_mask + tiles * cost.TILE_CYCLES
    return cycles / tiles * cost.wave_count(tiles * problem.batch_size * problem.num_heads_q)


def _traffic(problem: Problem, config: Sm90Backward) -> float:
    """Bytes of shared memory that one visit reads and writes."""
    dim, dim_v = sm90_dims(problem, config)
    scores, d_keys, d_values, d_queries = sm90_products(problem, config)
    rs = config.mma_dkv_is_rs
    read = sum(
        _read(product, depth, in_registers=in_registers)
        for product, depth, in_registers in (
            (scores, dim, False),
            (scores, dim_v, False),
            (d_keys, config.tile_m, rs),
            (d_values, config.tile_m, rs),
            (d_queries, config.tile_n, False),
        )
    )
    stored = config.tile_m * config.tile_n * 2 * (1 if rs else 2)
    return read + stored + config.tile_m * dim * DQ_BYTES


def _read(product: Product, depth: int, *, in_registers: bool) -> float:
    """Bytes that the instructions of a product read: each has 64 rows, and as many columns as its warp group."""
    (rows, _), (columns, by_columns) = product.instruction_rows, product.instruction_columns
    instructions = rows / 64 * by_columns
    return instructions * depth * 2 * ((0 if in_registers else 64) + columns / by_columns)
