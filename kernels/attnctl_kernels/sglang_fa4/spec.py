"""Family ``sglang_fa4``: the forward kernel of sglang's FlashAttention-4 fork, with block-sparse masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Family, PassName, Problem, Scalar, SparseBlock


class ForwardTiles(BaseModel):
    """The tile of the forward kernel."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tile_m: int | None = None
    tile_n: int | None = None
    q_stage: int | None = None
    learnable_sink: str | None = None  # its element type, where there is one
    rel_extent: int | None = None  # of a relative bias
    block_scaled: bool | None = None  # Q and K with a scale per block


class SglangFa4(Family):
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "sglang_fa4"
    title: ClassVar[str] = "sglang's vendored FlashAttention-4 CuTe DSL, forward"
    arches: ClassVar[tuple[str, ...]] = ("sm_90", "sm_100", "sm_103", "sm_110")
    extra: ClassVar[str] = "fa4"
    tunable: ClassVar[bool] = False

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return ForwardTiles

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        if arch != "sm_90":
            packed_rows = problem.seqlen_q * (problem.num_heads_q // problem.num_heads_kv)
            return {"tile_m": 128, "tile_n": 128, "q_stage": 2 if packed_rows > 128 else 1}
        tile_m, tile_n = sm90_tile(problem, sparse_block)
        return {"tile_m": tile_m, "tile_n": tile_n, "q_stage": 1}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}


def sm90_tile(problem: Problem, sparse_block: SparseBlock | None) -> tuple[int, int]:
    """The fork's choice on Hopper. It never fits the tile to the sparse block, beyond 192 rows.

    With a block mask the kernel itself is neither causal nor local: the mask function does that.
    """
    local = sparse_block is None and problem.mask.pattern == "sliding_window"
    causal = sparse_block is None and problem.mask.pattern == "causal"
    if problem.head_dim <= 96:
        tile_m = 192 if sparse_block is None or sparse_block[0] % 192 == 0 else 128
        wide = tile_m == 192 and problem.head_dim > 64 and not (local or causal)
        return tile_m, 144 if wide else 128
    if problem.head_dim <= 128:
        return 128, 128
    if problem.head_dim <= 192:
        return 128, 96 if local else 128 if problem.head_dim_v <= 128 else 112
    return 128, 64 if local else 80


FAMILY = SglangFa4()
