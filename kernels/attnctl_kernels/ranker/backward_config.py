"""The tile of the backward kernel, and what it takes: shared memory to the byte, and registers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Config, Scalar
from attnctl_kernels.ranker.config import BARRIER_BYTES, ELEMENT_BYTES, REGISTERS, ROWS, SMEM_GRANULE

TILES_M = (64, 128)
TILES_N = (64, 128)
STAGES = tuple(range(2, 7))

FLOAT_BYTES = 4
SCORE_BUFFERS = 2  # of dS: one warp group writes the next while another still multiplies the last
DQ_BUFFERS = 2  # of pieces of dQ on their way to memory: L2 takes most of a step to add one
# What addresses, LSE and delta of 64 rows, and loop counters take beside the fragments.
OTHER_REGISTERS = 32


class BackwardConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None  # query rows per step
    tile_n: int | None = None  # keys of a block: 64 per consumer warp group
    stages: int | None = None  # buffers of query rows and of their output gradients


def default_config(head_dim: int) -> dict[str, Scalar]:
    """Two warp groups; up to head_dim 128 each computes one piece of a step's dQ."""
    return {
        "tile_m": max(128 * ROWS // width(head_dim), ROWS),
        "tile_n": 128 // column_parts(head_dim),
        "stages": 2,
    }


def column_parts(head_dim: int) -> int:
    """Warp groups that share 64 keys. Each has dK and dV of a part of the columns; a thread has registers for 128."""
    return 1 if head_dim <= 128 else 2


def tiles_n(head_dim: int) -> tuple[int, ...]:
    """With keys for two warp groups at most."""
    return tuple(each for each in TILES_N if each // ROWS * column_parts(head_dim) in REGISTERS)


def warp_groups(head_dim: int, config: Config) -> int:
    return int(config["tile_n"]) // ROWS * column_parts(head_dim)


def width(head_dim: int) -> int:
    """Columns of dQ as it is multiplied and summed: whole pieces. At head_dim 96 the last 32 hold anything."""
    return -(-head_dim // ROWS) * ROWS


def piece_columns(head_dim: int) -> int:
    """Of a piece of dQ, whose 64 rows a warp group multiplies at once: where smem is scarce, half of a square."""
    return ROWS // column_parts(head_dim)


def do_stages(head_dim: int, config: Config) -> int:
    """Buffers of dO, which is let go of in the middle of a step: at head_dim 256 there is no room for one more."""
    stages = int(config["stages"])
    return stages - 1 if head_dim == 256 else stages


def keys_in_registers(head_dim: int) -> bool:
    """Whether there is room for a warp group's keys and values, which are the same in every step."""
    return head_dim == 64


def pieces(head_dim: int, config: Config) -> int:
    """Of a step's dQ, which the warp groups divide among themselves."""
    return int(config["tile_m"]) // ROWS * (width(head_dim) // piece_columns(head_dim))


def smem_bytes(head_dim: int, config: Config) -> int:
    """K and V; rings of Q, dO, and LSE with delta; two buffers of dS, and of a piece of dQ per warp group; barriers.

    Rounded up to whole KiB. K is as wide as dQ.
    """
    tile_m, tile_n, stages = (int(config[name]) for name in ("tile_m", "tile_n", "stages"))
    of_do = do_stages(head_dim, config)
    elements = tile_n * width(head_dim) + (tile_n + (stages + of_do) * tile_m) * head_dim
    elements += SCORE_BUFFERS * tile_m * tile_n
    # Warp groups that share keys have narrower pieces.
    floats = DQ_BUFFERS * tile_n * ROWS + 2 * stages * tile_m
    used = elements * ELEMENT_BYTES + floats * FLOAT_BYTES + barriers(stages, of_do) * BARRIER_BYTES
    return -(-used // SMEM_GRANULE) * SMEM_GRANULE


def barriers(stages: int, of_do: int) -> int:
    """Two for the keys, two for each stage; with fewer of dO they are a ring of their own."""
    return 2 + 2 * stages + (2 * of_do if of_do < stages else 0)


def fragment_registers(head_dim: int, config: Config) -> int:
    """Per consumer thread: dK and dV of 64 keys, S and dP of 64 x 64, P, and dS of the part before, in 16 bits.

    At head_dim 64 also K and V; above 128 half of the columns of dK and dV.
    """
    parts_before = 1 if int(config["tile_m"]) > ROWS else 0
    keys = head_dim // 2 if keys_in_registers(head_dim) else 0
    gradients = head_dim // column_parts(head_dim)
    return gradients + ROWS // 2 + ROWS // 2 + ROWS // 4 * (1 + parts_before) + keys


def register_limit(head_dim: int, config: Config) -> int:
    return REGISTERS[warp_groups(head_dim, config)][0] - OTHER_REGISTERS
