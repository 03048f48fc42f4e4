"""A rough time for one forward candidate on sm_90, to measure the promising ones first. Only its order matters."""

from __future__ import annotations

from functools import lru_cache

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Config, Problem, SparseBlock
from attnctl_kernels.fa4 import resources
from attnctl_kernels.fa4.mask_form import is_native
from attnctl_kernels.fa4.tiles import padded

# Per SM and cycle: operations of the tensor cores, exponentials, bytes from L2. Orders of magnitude of an H100.
TENSOR_OPS = 4096
EXPONENTIALS = 16
L2_BYTES = 40
MASK_CYCLES = 2  # per element of a partial block, spread over the threads of an SM: predicate and select
NATIVE_MASK_CYCLES = 0.5  # causality and windows compare a column with two numbers that each row has once
VISIT_CYCLES = 100  # barriers, and row maxima across threads, whatever the tile
TILE_CYCLES = 1500  # prologue and epilogue of a query tile
EXPOSED = {1: 1.0, 2: 0.35, 3: 0.3}  # share of the softmax that is not hidden, by MMA warp groups taking turns


def predicted_cost(problem: Problem, config: Config, sparse_block: SparseBlock | None) -> float:
    """Cycles, with what partial blocks waste, K and V traffic, and registers that spill."""
    tile_m, tile_n = int(config["tile_m"]), int(config["tile_n"])
    groups = resources.warp_groups(config)
    visits, masked = tile_visits(problem, tile_m, tile_n, sparse_block)
    elements = tile_m * tile_n
    products = 2 * elements * (padded(problem.head_dim) + padded(problem.head_dim_v)) / TENSOR_OPS
    softmax = elements / EXPONENTIALS * EXPOSED[groups]
    if config.get("intra_wg_overlap", True):
        softmax /= 2
    traffic = tile_n * (padded(problem.head_dim) + padded(problem.head_dim_v)) * problem.element_bytes / L2_BYTES
    stored = 0.0 if config.get("mma_pv_is_rs", True) else elements * problem.element_bytes / 128
    per_visit = max(products, traffic) + softmax + stored + VISIT_CYCLES
    over = resources.accumulator_registers(problem, config) / resources.REGISTER_CAP[groups]
    per_visit *= max(1.0, over) ** 2
    per_mask = elements * (NATIVE_MASK_CYCLES if is_native(config) else MASK_CYCLES) / 128 / groups
    tiles = -(-problem.seqlen_q // tile_m)
    cycles = visits * per_visit + masked * per_mask + tiles * TILE_CYCLES
    return cycles / tiles * wave_count(tiles * problem.batch_size * problem.num_heads_q)


def wave_count(programs: int) -> float:
    """Programs per SM, where the last wave is paid in full."""
    return float(-(-programs // ARCHES["sm_90"].num_sms))


@lru_cache(maxsize=1024)
def tile_visits(problem: Problem, tile_m: int, tile_n: int, sparse_block: SparseBlock | None) -> tuple[float, float]:
    """Key tiles that all query tiles of one head visit, and those of them that are masked element by element."""
    from attnctl_kernels import masks  # noqa: PLC0415 - brings NumPy, which only `tune` needs

    block = sparse_block or (tile_m, tile_n)
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block)
    scale = block[0] / tile_m * block[1] / tile_n
    return float((classes != masks.EMPTY).sum()) * scale, float((classes == masks.PARTIAL).sum()) * scale
