"""Family ``ranker_fa4``: the ranker's FlashAttention-4 wrapper around prebuilt block-sparse arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from attnctl_kernels.contract import Config, Family, PassName, Problem, Scalar, SparseBlock

BLOCK = 128  # rows and keys per sparse block, and the forward tile


class RankerSwitches(BaseModel):
    """Switches of the attention module; history and sequence lengths are facts of the mask and the problem."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    qk_norm: bool | None = None
    attn_logit_cap: float | None = None
    user_lens: tuple[Annotated[int, Field(gt=0)], ...] | None = None  # these: of rows packed from several users
    hist_sizes: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    cand_sizes: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    candidate_seq_len: Annotated[int, Field(gt=0)] | None = None
    num_user_prefix_tokens: int | None = None
    packed_seq_len: Annotated[int, Field(gt=0)] | None = None
    valid_block_upper: bool | None = None  # whether the bound is passed
    valid_block_lower: bool | None = None


class RankerFa4(Family):
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "ranker_fa4"
    title: ClassVar[str] = "x-algorithm ranker attention, FlashAttention-4 CuTe DSL"
    versions: ClassVar[tuple[str, ...]] = ("xai-v1", "xai-v2")
    arches: ClassVar[tuple[str, ...]] = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110")
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
    extra: ClassVar[str] = "fa4"
    tunable: ClassVar[bool] = False

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return RankerSwitches

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        return {"qk_norm": True, "attn_logit_cap": 0.0}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        return BLOCK, BLOCK


FAMILY = RankerFa4()
