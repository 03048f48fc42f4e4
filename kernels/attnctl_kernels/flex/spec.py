"""Family ``flex``: FlexAttention's kernels for Triton, flash-attn-4, CPU and MPS, with the options of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Config, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.flex import resources, tiles

VERSIONS = (tiles.OLD, "2.13")  # of torch
Device = Literal["cuda", "cpu", "mps", "xpu", "hpu"]


class FlexConfig(BaseModel):
    """`kernel_options` under upstream's names, then what the program passes elsewhere."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    BLOCK_M: int | None = None
    BLOCK_N: int | None = None
    BLOCK_M1: int | None = None
    BLOCK_N1: int | None = None
    BLOCK_M2: int | None = None
    BLOCK_N2: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    fwd_BLOCK_M: int | None = None  # noqa: N815 - upstream's name
    fwd_BLOCK_N: int | None = None  # noqa: N815 - upstream's name
    fwd_num_warps: int | None = None
    fwd_num_stages: int | None = None
    bwd_BLOCK_M1: int | None = None  # noqa: N815 - upstream's name
    bwd_BLOCK_N1: int | None = None  # noqa: N815 - upstream's name
    bwd_BLOCK_M2: int | None = None  # noqa: N815 - upstream's name
    bwd_BLOCK_N2: int | None = None  # noqa: N815 - upstream's name
    bwd_num_warps: int | None = None
    bwd_num_stages: int | None = None
    BACKEND: str | None = None
    FORCE_USE_FLEX_ATTENTION: bool | None = None
    PRESCALE_QK: bool | None = None
    ROWS_GUARANTEED_SAFE: bool | None = None
    BLOCKS_ARE_CONTIGUOUS: bool | None = None
    WRITE_DQ: bool | None = None
    USE_TMA: bool | None = None
    OUTPUT_LOGSUMEXP: bool | None = None
    OUTPUT_MAX: bool | None = None

    # arguments of flex_attention, and what its caller asks of the results
    enable_gqa: bool | None = None
    return_lse: bool | None = None
    return_max_scores: bool | None = None
    needs_lse_grad: bool | None = None
    captured_tensors_need_grad: bool | None = None
    captured_scalars: bool | None = None

    # arguments of create_block_mask, and what became of the mask
    separate_full_blocks: bool | None = None
    compute_dq_write_order: bool | None = None
    mask_device: Device | None = None
    sliced_mask: bool | None = None

    # how the call is run
    device: Device | None = None  # default: cuda where the profile names an arch, else cpu
    compiled: bool | None = None
    dynamic: bool | None = None
    max_autotune: bool | None = None
    deterministic: bool | None = None


class Flex(Family):
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "flex"
    title: ClassVar[str] = "PyTorch FlexAttention"
    versions: ClassVar[tuple[str, ...]] = VERSIONS
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
    tunable: ClassVar[bool] = False
    kv_may_differ: ClassVar[bool] = True

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return FlexConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """Inductor's own tile. Which kernel runs short queries depends on other options: those have no default here."""
        if arch not in ARCHES:
            return {}
        if pass_name == "backward":  # noqa: S105 - not a password
            backward = tiles.backward_default(problem, arch, VERSIONS[-1])
            names = ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", "num_stages", "num_warps")
            return dict(zip(names, backward, strict=True))
        if problem.seqlen_q < tiles.DECODE_BELOW:
            return {}
        forward = tiles.forward_default(problem, arch, VERSIONS[-1])
        return dict(zip(("BLOCK_M", "BLOCK_N", "num_stages", "num_warps"), forward, strict=True))

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """`create_block_mask`'s default; a call without a mask has one block that is larger than any sequence."""
        dense = problem.mask.pattern == "dense"
        return None if dense else (tiles.DEFAULT_SPARSE_BLOCK, tiles.DEFAULT_SPARSE_BLOCK)

    def resources(self, case: Case) -> tuple[Resource, ...]:
        return resources.table(case)


FAMILY = Flex()
