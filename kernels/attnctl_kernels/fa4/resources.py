"""What a forward tile takes on sm_90 and sm_80, from the allocations in ``flash_fwd_sm90.py`` and ``flash_fwd.py``."""

from __future__ import annotations

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Config, Problem
from attnctl_kernels.fa4.tiles import WARP_GROUP_ROWS, padded

SMEM_LIMIT = ARCHES["sm_90"].smem_bytes
KV_STAGES = 2
BARRIER_BYTES = 1024  # mbarriers, padded to the alignment of the tiles

# setmaxnreg gives the MMA warp groups 240 or 160 registers per thread; addresses and row statistics take the rest.
REGISTER_CAP = {1: 232, 2: 216, 3: 128}
# What the kernel is compiled for: all threads of the block together have 65536. One instruction must fit in it.
LAUNCH_REGISTERS = {warp_groups: min(255, 65536 // (128 * (warp_groups + 1)) // 8 * 8) for warp_groups in (1, 2, 3)}
# What ptxas wants beside the accumulators of one wgmma, with A in registers or in shared memory.
INSTRUCTION_OVERHEAD = {True: 30, False: 26}


def warp_groups(config: Config) -> int:
    return int(config["tile_m"]) // WARP_GROUP_ROWS


def smem_bytes(problem: Problem, config: Config) -> int:
    """Q (later O), two stages of K and V, and P where it does not stay in registers."""
    tile_m, tile_n = int(config["tile_m"]), int(config["tile_n"])
    dim, dim_v = padded(problem.head_dim), padded(problem.head_dim_v)
    elements = tile_m * dim + KV_STAGES * tile_n * (dim + dim_v)
    if not config.get("mma_pv_is_rs", True):
        elements += tile_m * tile_n
    return elements * problem.element_bytes + BARRIER_BYTES


def accumulator_registers(problem: Problem, config: Config) -> int:
    """Per MMA thread: S and O, and P where it is made while the next S is computed."""
    tile_n, dim_v = int(config["tile_n"]), padded(problem.head_dim_v)
    held = tile_n // 2 + dim_v // 2
    if config.get("mma_pv_is_rs", True) and config.get("intra_wg_overlap", True):
        held += tile_n // 4
    return held


def instruction_registers(problem: Problem, config: Config) -> int:
    """The larger accumulator of the two products, and what its instruction needs beside it."""
    in_registers = bool(config.get("mma_pv_is_rs", True))
    scores = int(config["tile_n"]) // 2 + INSTRUCTION_OVERHEAD[False]
    return max(scores, padded(problem.head_dim_v) // 2 + INSTRUCTION_OVERHEAD[in_registers])


def keeps_accumulators(problem: Problem, config: Config) -> bool:
    """Whether S, P and O stay in registers."""
    return accumulator_registers(problem, config) <= REGISTER_CAP[warp_groups(config)]


def assembles(problem: Problem, config: Config) -> bool:
    """Whether each matrix instruction finds its registers."""
    return instruction_registers(problem, config) <= LAUNCH_REGISTERS[warp_groups(config)]


def ampere_smem_bytes(problem: Problem, tile_m: int, tile_n: int) -> int:
    """Q, and one stage of K and V."""
    dim, dim_v = padded(problem.head_dim), padded(problem.head_dim_v)
    return (tile_m * dim + tile_n * (dim + dim_v)) * problem.element_bytes
