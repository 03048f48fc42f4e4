"""The backward kernel of sm_90 and sm_120: what it is configured with, what its table chooses, and what that takes.

From ``_tile_size_bwd_sm90`` in ``interface.py`` and the allocations in ``flash_bwd_sm90.py`` and ``flash_bwd.py``.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields, replace
from typing import Self

from attnctl_kernels.contract import Case, Config, Problem, Scalar, SparseBlock
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.fa4.resources import REGISTER_CAP

ALIGNMENT = 1024
STATISTICS_ALIGNMENT = 128
SM120_TILE = 64


@dataclass(frozen=True, slots=True)
class Sm90Backward:
    """One config of the kernel, in the words of upstream's ``FlashAttentionBackwardSm90`` and ``BwdConfig``."""

    tile_m: int
    tile_n: int
    num_stages_Q: int = 2
    num_stages_dO: int = 2
    num_stages_PdS: int = 2
    SdP_swapAB: bool = True  # S and dP are computed transposed: keys along the 64 rows of a matrix instruction
    dKV_swapAB: bool = False
    dQ_swapAB: bool = False
    AtomLayoutMSdP: int = 1  # warp groups along the query rows of S and dP
    AtomLayoutNdKV: int = 2  # along the keys of dK and dV
    AtomLayoutMdQ: int = 1  # along the query rows of dQ
    num_wg: int = 2  # warp groups that compute
    dQ_single_wg: bool = False  # the first of them computes dQ alone

    @classmethod
    def of(cls, config: Config) -> Self:
        """The part of a complete config that makes the kernel."""
        return cls(**{name: config[name] for name in NAMES})  # type: ignore[arg-type]

    def in_order(self) -> tuple[int, ...]:
        """The arguments of upstream's ``BwdConfig``."""
        return astuple(self)

    @property
    def mma_dkv_is_rs(self) -> bool:
        """Whether P and dS go to dV and dK in registers, so that P needs no room in shared memory."""
        whole_rows = self.AtomLayoutMSdP == 1 and self.AtomLayoutNdKV == self.num_wg
        return whole_rows and self.SdP_swapAB and not self.dKV_swapAB

    @property
    def num_wg_dQ(self) -> int:
        return 1 if self.dQ_single_wg else self.num_wg


NAMES = tuple(each.name for each in fields(Sm90Backward))
CAUSAL_128: dict[str, Scalar] = {"tile_m": 64, "dQ_swapAB": False}  # instead, at head_dim 97 to 128
COUNTS = tuple(each.name for each in fields(Sm90Backward) if each.type == "int")


def sm90_default(problem: Problem, sparse_block: SparseBlock | None) -> Sm90Backward:
    """As ``_tile_size_bwd_sm90``, without a causal flag or a window."""
    tile = tiles.backward_tile(problem, "sm_90", sparse_block)
    chosen = Sm90Backward(tile.tile_m, tile.tile_n)
    if problem.head_dim <= 64:
        return replace(chosen, AtomLayoutMdQ=2)
    if problem.head_dim <= 96:
        return replace(chosen, dQ_single_wg=True)
    if problem.head_dim <= 128:
        return replace(chosen, dQ_swapAB=tile.tile_m % 64 != 0)
    chosen = replace(chosen, num_stages_PdS=1, SdP_swapAB=False, dKV_swapAB=True)
    if problem.head_dim <= 192:
        return replace(chosen, num_stages_dO=2 if problem.head_dim_v <= 128 else 1)
    chosen = replace(chosen, num_stages_dO=1, AtomLayoutNdKV=1)
    return replace(chosen, num_stages_Q=1, dKV_swapAB=False) if tiles.is_sparse(problem) else chosen


def sm90_backward(case: Case) -> Sm90Backward | None:
    """The config of ``case``; None where that makes no kernel."""
    own: dict[str, Scalar] = {}
    if any(Call(case).causal_and_local) and 96 < case.problem.head_dim <= 128 and "tile_m" not in case.given:
        # With a causal flag or a window, which only other programs pass, the kernel's own choice is another one.
        own = {name: value for name, value in CAUSAL_128.items() if name not in case.given}
    config = Sm90Backward.of({**case.config, **own})
    return config if all(getattr(config, name) > 0 for name in COUNTS) else None


def sm90_modelled(case: Case) -> Sm90Backward | None:
    """The config, where it has as many warp groups as the kernel takes, and layouts that divide them (FA4-B014)."""
    config = sm90_backward(case)
    if config is None or config.num_wg not in REGISTER_CAP or config.num_wg % config.AtomLayoutMSdP:
        return None
    return config if config.num_wg % config.AtomLayoutNdKV == config.num_wg_dQ % config.AtomLayoutMdQ == 0 else None


def sm90_dims(problem: Problem, config: Sm90Backward) -> tuple[int, int]:
    """Head dimensions as the kernel pads them."""
    step = 64 if config.dKV_swapAB else tiles.GRANULE
    return ceil_div(problem.head_dim, step) * step, ceil_div(problem.head_dim_v, step) * step


@dataclass(frozen=True, slots=True)
class Product:
    """One of the five matrix products: ``rows`` x ``columns`` of the result, shared out to warp groups both ways."""

    result: str
    rows: int
    columns: int
    groups_of_rows: int
    groups: int
    swapped: bool  # computed transposed

    @property
    def groups_of_columns(self) -> int:
        return self.groups // self.groups_of_rows

    @property
    def instruction_rows(self) -> tuple[int, int]:
        """What is computed along the rows of the instruction, and how many warp groups share it."""
        return (self.columns, self.groups_of_columns) if self.swapped else (self.rows, self.groups_of_rows)

    @property
    def instruction_columns(self) -> tuple[int, int]:
        return (self.rows, self.groups_of_rows) if self.swapped else (self.columns, self.groups_of_columns)

    @property
    def divides(self) -> bool:
        """Whether every warp group gets whole instructions of 64 rows and 8 to 256 columns in eights."""
        (rows, by_rows), (columns, by_columns) = self.instruction_rows, self.instruction_columns
        whole = rows % (64 * by_rows) == 0 and columns % (8 * by_columns) == 0
        return whole and columns // by_columns <= tiles.MAX_TILE_N


def sm90_products(problem: Problem, config: Sm90Backward) -> tuple[Product, ...]:
    """As the kernel's ``_get_tiled_mma``; S and dP are one."""
    dim, dim_v = sm90_dims(problem, config)
    tile_m, tile_n, groups = config.tile_m, config.tile_n, config.num_wg
    return (
        Product("S", tile_m, tile_n, config.AtomLayoutMSdP, groups, config.SdP_swapAB),
        Product("dK", tile_n, dim, config.AtomLayoutNdKV, groups, config.dKV_swapAB),
        Product("dV", tile_n, dim_v, config.AtomLayoutNdKV, groups, config.dKV_swapAB),
        Product("dQ", tile_m, dim, config.AtomLayoutMdQ, config.num_wg_dQ, config.dQ_swapAB),
    )


def sm90_smem_bytes(problem: Problem, config: Sm90Backward) -> int:
    """Barriers and row statistics, then Q, V, K, dO, P, dS and the staging of dQ, each on a boundary of 1024."""
    dim, dim_v = sm90_dims(problem, config)
    rows = ceil_div(config.tile_m, 64) * 64 * 4
    size = _up(16 * (config.num_stages_Q + config.num_stages_dO), STATISTICS_ALIGNMENT)
    size = _up(size + rows * config.num_stages_Q, STATISTICS_ALIGNMENT) + rows * config.num_stages_dO
    p_or_ds = config.tile_m * config.tile_n * config.num_stages_PdS * 2
    for bytes_ in (
        config.tile_m * dim * 2 * config.num_stages_Q,
        config.tile_n * dim_v * 2,
        config.tile_n * dim * 2,
        config.tile_m * dim_v * 2 * config.num_stages_dO,
        0 if config.mma_dkv_is_rs else p_or_ds,
        p_or_ds,
        config.tile_m * dim * 4,
    ):
        size = _up(size, ALIGNMENT) + bytes_
    return _up(size, ALIGNMENT)


def sm90_registers(problem: Problem, config: Sm90Backward) -> int:
    """Accumulators per thread: S and dP, or dQ, beside dK and dV."""
    dim, dim_v = sm90_dims(problem, config)
    threads = 128 * config.num_wg
    scores = config.tile_m * config.tile_n // threads
    dq = config.tile_m * dim // (128 * config.num_wg_dQ)
    return max(2 * scores, dq) + config.tile_n * dim // threads + config.tile_n * dim_v // threads


def sm120_smem_bytes(problem: Problem) -> int:
    """K, V, the stages of Q and dO, P and dS, and the row statistics of both."""
    dim, dim_v = (ceil_div(each, 32) * 32 for each in (problem.head_dim, problem.head_dim_v))
    stages = 2 if problem.head_dim <= 64 else 1
    tile = SM120_TILE
    return tile * (dim + dim_v) * 2 * (1 + stages) + 2 * tile * tile * 2 + 2 * tile * 4 * stages


def _up(size: int, step: int) -> int:
    return ceil_div(size, step) * step


def sm90_space(problem: Problem) -> dict[str, tuple[int | bool, ...]]:
    """The tiles of upstream's ``sm90_config_search``, with all its layouts, and every pair of stages of dO and dS."""
    wide = problem.head_dim > 128
    grouped = problem.num_heads_q != problem.num_heads_kv
    space: dict[str, tuple[int | bool, ...]] = {
        "tile_m": (64, 80, 96, 112, 128),
        "tile_n": (48, 64, 80, 96, 112, 128) if wide else (64, 80, 96, 112, 128),
        "num_stages_Q": (1, 2) if wide else (2,),
        "num_stages_dO": (1, 2),
        "num_stages_PdS": (1, 2),
        "SdP_swapAB": (True, False),
        "dKV_swapAB": (True, False),
        "dQ_swapAB": (True, False),
        "AtomLayoutMSdP": (1, 2),
        "AtomLayoutNdKV": (1, 2),
        "AtomLayoutMdQ": (1, 2),
        "num_wg": (2, 3) if wide and not grouped else (2,),
        "dQ_single_wg": (True, False),
    }
    return {**space, "subtile_factor": (1, 2)} if tiles.is_sparse(problem) else space
