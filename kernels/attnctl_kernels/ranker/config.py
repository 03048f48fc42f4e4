"""The tile of the forward kernel, and what it takes: shared memory to the byte, and registers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Config, Scalar

ROWS = 64  # of a warp group: wgmma's M
GRANULE = 16  # columns: the depth of one wgmma, of which P·V takes tile_n
TILES_M = (64, 128, 192)
TILES_N = tuple(range(2 * GRANULE, 257, GRANULE))
STAGES = tuple(range(2, 9))
HEAD_DIMS = (64, 128)
DTYPES = ("bfloat16", "float16")
PATTERNS = ("history_candidate", "dense")

SMEM_LIMIT = ARCHES["sm_90"].smem_bytes
SMEM_GRANULE = 1024
BARRIER_BYTES = 8
ELEMENT_BYTES = 2

# setmaxnreg, per thread of the consumers and of the producer, by consumer groups; a block has 64K registers.
REGISTERS = {1: (240, 40), 2: (240, 24), 3: (160, 32)}
# What addresses, row statistics and the next tile's bounds take beside the fragments.
OTHER_REGISTERS = 28


class ForwardConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None  # query rows of a block: 64 per consumer warp group
    tile_n: int | None = None  # keys per step
    stages: int | None = None  # buffers of keys, and of values
    turns: bool | None = None  # the consumer warp groups issue their products in turns
    persistent: bool | None = None  # one block per SM takes tile after tile, and loads the next while it stores


def default_config(head_dim: int) -> dict[str, Scalar]:
    """Three warp groups, and as many keys per step as shared memory and registers then hold."""
    tile_n, stages = (80, 2) if head_dim > 64 else (128, 3)
    return {"tile_m": 192, "tile_n": tile_n, "stages": stages, "turns": True, "persistent": True}


def warp_groups(config: Config) -> int:
    return int(config["tile_m"]) // ROWS


def smem_bytes(head_dim: int, config: Config) -> int:
    """Q; K on the diagonal; V on the diagonal, and then O; rings of K and V; barriers; rounded up."""
    tile_m, tile_n, stages = (int(config[name]) for name in ("tile_m", "tile_n", "stages"))
    rows = 3 * tile_m + 2 * stages * tile_n
    barriers = 6 * warp_groups(config) + 2 * stages
    used = rows * head_dim * ELEMENT_BYTES + barriers * BARRIER_BYTES
    return -(-used // SMEM_GRANULE) * SMEM_GRANULE


def fragment_registers(head_dim: int, config: Config) -> int:
    """Per consumer thread: S, P and O."""
    tile_n = int(config["tile_n"])
    return tile_n // 2 + tile_n // 4 + head_dim // 2


def register_limit(config: Config) -> int:
    return REGISTERS[warp_groups(config)][0] - OTHER_REGISTERS
