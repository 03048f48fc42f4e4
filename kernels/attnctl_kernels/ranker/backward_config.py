"""The tile of the backward kernel, and what it takes: shared memory to the byte, and registers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Config, Scalar
from attnctl_kernels.ranker.config import BARRIER_BYTES, ELEMENT_BYTES, REGISTERS, ROWS, SMEM_GRANULE

TILES_M = (64, 128)
TILES_N = (64, 128)
STAGES = tuple(range(1, 7))

FLOAT_BYTES = 4
SCORE_BUFFERS = 2  # of dS: one warp group writes the next while another still multiplies the last
# What addresses, row statistics and loop counters take beside the fragments.
OTHER_REGISTERS = 24


class BackwardConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None  # query rows per step
    tile_n: int | None = None  # keys of a block: 64 per consumer warp group
    stages: int | None = None  # buffers of query rows and of their output gradients


def default_config(head_dim: int) -> dict[str, Scalar]:
    """Two warp groups, and the rows per step that their registers hold."""
    tile_m, stages = (64, 3) if head_dim > 64 else (128, 2)
    return {"tile_m": tile_m, "tile_n": 128, "stages": stages}


def warp_groups(config: Config) -> int:
    return int(config["tile_n"]) // ROWS


def shares_of_dq(head_dim: int, config: Config) -> int:
    """The 64 x 64 squares of a step's dQ, which the warp groups divide among themselves."""
    return int(config["tile_m"]) // ROWS * (head_dim // 64)


def smem_bytes(head_dim: int, config: Config) -> int:
    """K and V; rings of Q, dO, and LSE with delta; two buffers of dS; barriers; rounded up."""
    tile_m, tile_n, stages = (int(config[name]) for name in ("tile_m", "tile_n", "stages"))
    rows = 2 * tile_n + 2 * stages * tile_m
    elements = rows * head_dim + SCORE_BUFFERS * tile_m * tile_n
    barriers = 2 + 2 * stages
    used = elements * ELEMENT_BYTES + 2 * stages * tile_m * FLOAT_BYTES + barriers * BARRIER_BYTES
    return -(-used // SMEM_GRANULE) * SMEM_GRANULE


def fragment_registers(head_dim: int, config: Config) -> int:
    """Per consumer thread: dK and dV, and the larger of S, dP and P together, and of P, dS and dQ."""
    tile_m = int(config["tile_m"])
    scores = tile_m // 2 + tile_m // 2 + tile_m // 4
    dq = tile_m * head_dim // 128 // warp_groups(config)
    return head_dim + max(scores, tile_m // 4 + tile_m // 4 + dq)


def register_limit(config: Config) -> int:
    return REGISTERS[warp_groups(config)][0] - OTHER_REGISTERS
