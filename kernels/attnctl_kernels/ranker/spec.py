"""Family ``ranker``: this project's own history/candidate attention for Hopper, in CuTe DSL."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Config, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.ranker import backward_config, backward_spec
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker.sources import SOURCES, sources_hash

TENSOR_OPS = 4096  # per SM and cycle
UNEQUAL = ("causal", "prefix_lm", "document")  # masks of which some tiles see more keys than others
TILE_CYCLES = 1500  # prologue, diagonal and epilogue of a tile
STEP_CYCLES = 150


class Ranker(Family):
    name: ClassVar[str] = "ranker"
    title: ClassVar[str] = "history/candidate attention for Hopper (CuTe DSL)"
    arches: ClassVar[tuple[str, ...]] = ("sm_90",)
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    extra: ClassVar[str] = "ranker"

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return own.ForwardConfig if pass_name == "forward" else backward_config.BackwardConfig  # noqa: S105 - not a password

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        if pass_name == "backward":  # noqa: S105 - not a password
            return backward_config.default_config(problem.head_dim)
        return own.default_config(problem.head_dim, ranges=by_ranges(problem))

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        if pass_name == "backward":  # noqa: S105 - not a password
            return backward_spec.space()
        return {
            "tile_m": own.TILES_M,
            "tile_n": tuple(n for n in own.TILES_N if own.LEAST_KEYS <= n <= 192),
            "stages": own.STAGES[:3],
            "turns": (True, False),
            "persistent": (True, False),
            "schedule": own.SCHEDULES if problem.mask.pattern in UNEQUAL else own.SCHEDULES[:1],
            "balanced": (False, True),
        }

    def resources(self, case: Case) -> tuple[Resource, ...]:
        if case.pass_name == "backward":  # noqa: S105 - not a password
            return backward_spec.resources(case)
        if not covers(case):
            return ()
        return (
            Resource(
                "shared memory",
                own.smem_bytes(case.problem.head_dim, case.config, ranges=by_ranges(case.problem)),
                own.SMEM_LIMIT,
                "bytes",
            ),
            Resource(
                "fragments per consumer thread",
                own.fragment_registers(case.problem.head_dim, case.config),
                own.register_limit(case.config),
                "registers",
            ),
        )

    def grid(self, case: Case) -> int | None:
        if case.pass_name == "backward":  # noqa: S105 - not a password
            return backward_spec.grid(case)
        if not covers(case):
            return None
        tiles, num_sms = tile_count(case.problem, case.config), ARCHES["sm_90"].num_sms
        whole, pieces = own.deal(tiles, num_sms, case.config)
        return min(whole + (tiles - whole) * pieces, num_sms) if case.config["persistent"] else tiles

    def sources(self) -> dict[str, str]:
        return {SOURCES: sources_hash()}

    def kernel_key(self, case: Case) -> Hashable:
        """Lengths, heads and what rows see are arguments."""
        return case.problem.head_dim, case.problem.dtype, by_ranges(case.problem)

    def predicted_cost(self, case: Case) -> float:
        """Cycles of an SM: the products that it waits for, and what a step and a tile cost beside them."""
        if case.pass_name == "backward":  # noqa: S105 - not a password
            return backward_spec.predicted_cost(case)
        if not covers(case):
            return 0.0
        problem, config = case.problem, case.config
        tile_m, tile_n = int(config["tile_m"]), int(config["tile_n"])
        products = 4 * tile_m * tile_n * problem.head_dim / TENSOR_OPS
        steps = -(-keys_per_tile(problem, tile_m) // tile_n)
        tiles, num_sms, groups = tile_count(problem, config), ARCHES["sm_90"].num_sms, own.warp_groups(config)
        whole, pieces = own.deal(tiles, num_sms, config)
        last = -(-groups // pieces) / groups if whole < tiles else 0.0  # the part of a tile that a last round takes
        waves = -(-whole // num_sms) + last
        exposed = {1: 1.6, 2: 1.0, 3: 1.0}[groups]
        over = own.fragment_registers(problem.head_dim, config) / own.register_limit(config)
        return waves * (steps * (products * exposed * max(1.0, over) ** 2 + STEP_CYCLES) + TILE_CYCLES)


def by_ranges(problem: Problem) -> bool:
    """Whether the forward kernel takes the mask as one range of keys per row: what has no candidates."""
    return problem.mask.pattern in own.RANGES


def keys_per_tile(problem: Problem, tile_m: int) -> int:
    """That a tile visits, on average, as far as that is known without the mask's tables."""
    mask, keys = problem.mask, problem.seqlen_k
    if mask.pattern == "history_candidate":
        return keys if mask.history_len is None else min(mask.history_len, keys)
    if mask.pattern == "sliding_window":
        return min((mask.window or keys) + tile_m, keys)
    if mask.pattern == "document":
        longest = max(mask.document_lens or (mask.document_len or keys,))
        return min(longest + tile_m, keys)
    if mask.pattern in {"causal", "prefix_lm"}:
        return (keys + (mask.prefix_len or 0)) // 2
    return keys


def covers(case: Case) -> bool:
    """Whether the config is one that a kernel can be built for, resources aside."""
    config = case.config
    return (
        case.problem.head_dim == case.problem.head_dim_v
        and case.problem.head_dim in own.HEAD_DIMS
        and case.problem.dtype in own.DTYPES
        and config.get("tile_m") in own.TILES_M
        and config.get("tile_n") in own.TILES_N
        and config.get("stages") in own.STAGES
    )


def tile_count(problem: Problem, config: Config) -> int:
    return own.tile_count(int(config["tile_m"]), problem.batch_size, problem.seqlen_q, problem.num_heads_q)


FAMILY = Ranker()
