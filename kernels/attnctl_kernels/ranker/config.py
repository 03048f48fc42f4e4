"""The tile of the forward kernel, and what it takes: shared memory to the byte, and registers."""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Config, Pattern, Scalar

ROWS = 64  # of a warp group: wgmma's M
GRANULE = 16  # columns: the depth of one wgmma, of which P·V takes tile_n
TILES_M = (64, 128, 192)
TILES_N = tuple(range(2 * GRANULE, 257, GRANULE))
STAGES = tuple(range(2, 9))
HEAD_DIMS = (64, 96, 128, 192, 256)
DTYPES = ("bfloat16", "float16")
# A row sees one range of keys, or the history and perhaps itself.
RANGES: tuple[Pattern, ...] = ("dense", "causal", "sliding_window", "document", "prefix_lm")
PATTERNS: tuple[Pattern, ...] = ("history_candidate", *RANGES)

SMEM_LIMIT = ARCHES["sm_90"].smem_bytes
SMEM_GRANULE = 1024
BARRIER_BYTES = 8
ELEMENT_BYTES = 2

# setmaxnreg, per thread of the consumers and of the producer, by consumer groups; a block has 64K registers.
REGISTERS = {1: (240, 40), 2: (240, 24), 3: (160, 32)}
# What addresses, row statistics and the next tile's bounds take beside the fragments.
OTHER_REGISTERS = 28

Schedule = Literal["linear", "longest_first"]
SCHEDULES: tuple[Schedule, ...] = ("linear", "longest_first")


class ForwardConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None  # query rows of a block: 64 per consumer warp group
    tile_n: int | None = None  # keys per step
    stages: int | None = None  # buffers of keys, and of values
    turns: bool | None = None  # the consumer warp groups issue their products in turns
    persistent: bool | None = None  # one block per SM takes tile after tile, and loads the next while it stores
    schedule: Schedule | None = None  # the order of tiles: of batch row, head and row; or those of most keys first
    balanced: bool | None = None  # tiles that are left for a last round are cut between blocks that would be idle


LEAST_KEYS = 48  # per step, of defaults and of the space: with fewer, a step is all barriers
LEAST_KEYS_OF_THREE = (
    64  # of the default: at head_dim 192, 192 x 48 takes 1.09 times what 128 x 80 does (docs/kernels.md)
)
_STAGES_OF_DEFAULT = (3, 2)


def default_config(head_dim: int, *, ranges: bool = False) -> dict[str, Scalar]:
    """As many warp groups as leave room for 48 keys per step, or for 64 with three groups; then as many keys as fit.

    Then up to three stages.
    """
    tile_m, tile_n, stages = _default_tile(head_dim, ranges)
    return {
        "tile_m": tile_m,
        "tile_n": tile_n,
        "stages": stages,
        "turns": True,
        "persistent": True,
        "schedule": "linear",
        "balanced": False,
    }


@cache
def _default_tile(head_dim: int, ranges: bool) -> tuple[int, int, int]:
    for tile_m in reversed(TILES_M):
        least = LEAST_KEYS if tile_m < TILES_M[-1] else LEAST_KEYS_OF_THREE
        for tile_n in reversed([each for each in TILES_N if least <= each <= 128]):
            for stages in _STAGES_OF_DEFAULT:
                config = {"tile_m": tile_m, "tile_n": tile_n, "stages": stages}
                fits = smem_bytes(head_dim, config, ranges=ranges) <= SMEM_LIMIT
                if fits and fragment_registers(head_dim, config) <= register_limit(config):
                    return tile_m, tile_n, stages
    return TILES_M[0], TILES_N[0], STAGES[0]


def warp_groups(config: Config) -> int:
    return int(config["tile_m"]) // ROWS


def most_keys(config: Config) -> int:
    """Per step. With three groups, and the one that loads, ptxas has 128 registers per thread, and refuses 208."""
    return 192 if warp_groups(config) == 3 else TILES_N[-1]


def tile_count(tile_m: int, batch_size: int, seqlen: int, num_heads: int) -> int:
    return -(-seqlen // tile_m) * num_heads * batch_size


def deal(tiles: int, num_ctas: int, config: Config) -> tuple[int, int]:
    """Tiles that stay whole, and into how many pieces the others are cut: as the kernel has it."""
    if not config.get("balanced"):
        return tiles, 1
    rest = tiles % num_ctas
    return tiles - rest, max(min(num_ctas // max(rest, 1), warp_groups(config)), 1)


def diagonal_in_output(head_dim: int) -> bool:
    """Whether K on the diagonal lies in the output's buffer, before V does: where a third one would cost half a tile.

    It can then be loaded only once the output of the tile before has left.
    """
    return head_dim > 128


def smem_bytes(head_dim: int, config: Config, *, ranges: bool = False) -> int:
    """Q; K on the diagonal, unless rows see ranges; V on the diagonal, and then O; rings of K and V; barriers.

    Rounded up to whole KiB. Above head_dim 128 the diagonal has one buffer.
    """
    tile_m, tile_n, stages = (int(config[name]) for name in ("tile_m", "tile_n", "stages"))
    rows = (2 if ranges or diagonal_in_output(head_dim) else 3) * tile_m + 2 * stages * tile_n
    barriers = 6 * warp_groups(config) + 2 * stages
    used = rows * head_dim * ELEMENT_BYTES + barriers * BARRIER_BYTES
    return -(-used // SMEM_GRANULE) * SMEM_GRANULE


def fragment_registers(head_dim: int, config: Config) -> int:
    """Per consumer thread: S, P and O."""
    tile_n = int(config["tile_n"])
    return tile_n // 2 + tile_n // 4 + head_dim // 2


def register_limit(config: Config) -> int:
    return REGISTERS[warp_groups(config)][0] - OTHER_REGISTERS
