"""What several rules need: the case's numbers, and values that work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attnctl_kernels.contract import Case, Config, Problem, SparseBlock
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.rule import Fix

HEAD_DIM_GRANULE = 8  # 16 bytes of a 16-bit type
MAX_HEAD_DIM = 256
TILES_N = range(tiles.GRANULE, tiles.MAX_TILE_N + 1, tiles.GRANULE)


def number(case: Case, name: str) -> int:
    """The parameter, or 0 where it makes no sense: another rule says so."""
    value = case.config.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def block(case: Case) -> SparseBlock | None:
    """The sparse block, unless it makes no sense."""
    return case.sparse_block if case.sparse_block and min(case.sparse_block) > 0 else None


def runs_on_sm90(problem: Problem) -> bool:
    """Whether the sm_90 kernel takes the type and the head dimensions; FA4-E001 and FA4-E004 say so otherwise."""
    dims = (problem.head_dim, problem.head_dim_v)
    return problem.element_bytes == 2 and all(
        HEAD_DIM_GRANULE <= dim <= MAX_HEAD_DIM and dim % HEAD_DIM_GRANULE == 0 for dim in dims
    )


def has_blackwell_kernel(dim: int, dim_v: int) -> bool:
    """Whether a kernel of sm_100, sm_103 and sm_110 takes these head dimensions; FA4-E002 says so otherwise."""
    usual = 8 <= dim <= 128 and 8 <= dim_v <= 128
    own = (dim, dim_v) in ((192, 128), (256, 256), (64, 512), (512, 512))
    return (usual or own) and dim % HEAD_DIM_GRANULE == 0 and dim_v % HEAD_DIM_GRANULE == 0


def nearest(value: int, legal: Iterable[int]) -> tuple[int, ...]:
    """The largest legal value below and the smallest above."""
    choices = sorted(legal)
    below = [each for each in choices if each < value]
    above = [each for each in choices if each > value]
    return (*below[-1:], *above[:1])


def tile_fixes(config: Config, works: Callable[[Config], bool]) -> tuple[Fix, ...]:
    """Per parameter of a forward tile, the change to it alone with which it works: the largest smaller value."""
    fixes = []
    for name, legal in (("tile_n", TILES_N), ("tile_m", tiles.SM90_TILES_M)):
        smaller = (each for each in sorted(legal, reverse=True) if each < int(config[name]))
        fixes += [Fix(f"config.{name}", each) for each in smaller if works({**config, name: each})][:1]
    for name, value in (("mma_pv_is_rs", True), ("mma_pv_is_rs", False)):
        if config.get(name) != value and works({**config, name: value}):
            fixes.append(Fix(f"config.{name}", value))
    return tuple(fixes)
