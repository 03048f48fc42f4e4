"""The tile of the backward kernel, and what it takes: shared memory to the byte, and registers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Config, Scalar
from attnctl_kernels.ranker.config import BARRIER_BYTES, ELEMENT_BYTES, REGISTERS, ROWS, SMEM_GRANULE

TILES_M = (64, 128)
TILES_N = (64, 128)
STAGES = tuple(range(2, 7))
HEAD_DIMS = (64, 96, 128)

FLOAT_BYTES = 4
SCORE_BUFFERS = 2  # of dS: one warp group writes the next while another still multiplies the last
DQ_BUFFERS = 2  # of dQ on its way to memory: L2 takes most of a step to add one
# What addresses, LSE and delta of 64 rows, and loop counters take beside the fragments.
OTHER_REGISTERS = 32


class BackwardConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None  # query rows per step
    tile_n: int | None = None  # keys of a block: 64 per consumer warp group
    stages: int | None = None  # buffers of query rows and of their output gradients


def default_config(head_dim: int) -> dict[str, Scalar]:
    """Two warp groups, and of a step's dQ one square of 64 x 64 for each."""
    return {"tile_m": 128 * ROWS // width(head_dim), "tile_n": 128, "stages": 2}


def warp_groups(config: Config) -> int:
    return int(config["tile_n"]) // ROWS


def width(head_dim: int) -> int:
    """Columns of dQ as it is multiplied and summed: whole squares. At head_dim 96 the last 32 hold anything."""
    return -(-head_dim // ROWS) * ROWS


def keys_in_registers(head_dim: int) -> bool:
    """Whether there is room for a warp group's keys and values, which are the same in every step."""
    return head_dim == 64


def squares(head_dim: int, config: Config) -> int:
    """The 64 x 64 squares of a step's dQ, which the warp groups divide among themselves."""
    return int(config["tile_m"]) // ROWS * (width(head_dim) // ROWS)


def smem_bytes(head_dim: int, config: Config) -> int:
    """K and V; rings of Q, dO, and LSE with delta; two buffers of dS, and of a square of dQ per warp group; barriers.

    Rounded up to whole KiB. K is as wide as dQ.
    """
    tile_m, tile_n, stages = (int(config[name]) for name in ("tile_m", "tile_n", "stages"))
    elements = tile_n * width(head_dim) + (tile_n + 2 * stages * tile_m) * head_dim + SCORE_BUFFERS * tile_m * tile_n
    floats = DQ_BUFFERS * tile_n * ROWS + 2 * stages * tile_m
    barriers = 2 + 2 * stages
    used = elements * ELEMENT_BYTES + floats * FLOAT_BYTES + barriers * BARRIER_BYTES
    return -(-used // SMEM_GRANULE) * SMEM_GRANULE


def fragment_registers(head_dim: int, config: Config) -> int:
    """Per consumer thread: dK and dV of 64 keys, S and dP of 64 x 64, P, and dS of the part before, in 16 bits.

    At head_dim 64 also K and V.
    """
    parts_before = 1 if int(config["tile_m"]) > ROWS else 0
    keys = head_dim // 2 if keys_in_registers(head_dim) else 0
    return head_dim + ROWS // 2 + ROWS // 2 + ROWS // 4 * (1 + parts_before) + keys


def register_limit(config: Config) -> int:
    return REGISTERS[warp_groups(config)][0] - OTHER_REGISTERS
