"""Family ``tokamax``: attention of the tokamax library, with one Config per pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Case, Dtype, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.tokamax import resources

Implementation = Literal["mosaic", "triton"]


class _Call(BaseModel):
    """What both passes are told beside their tiles."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    implementation: Implementation | None = None
    precision: str | None = None
    logits_dtype: Dtype | None = None
    bias_dims: int | None = None  # sequence dimensions of the bias: 0 (none), 1 or 2
    mask_dims: int | None = None  # of the mask array
    dropout: bool | None = None
    paged: bool | None = None
    normalize_output: bool | None = None
    return_residuals: bool | None = None


class ForwardConfig(_Call):
    block_q: int | None = None
    block_kv: int | None = None
    num_stages: int | None = None
    fold_q_sequence_heads: bool | None = None
    split_k: int | None = None
    persistent: bool | None = None  # sm_90
    num_tma_splits: int | None = None  # sm_100
    collective: bool | None = None  # sm_100
    use_stable_softmax: bool | None = None
    k_range: bool | None = None  # the mask is given as k_start and k_end


class BackwardConfig(_Call):
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    num_stages: int | None = None
    compute_wgs: int | None = None  # sm_90
    residual_stages: int | None = None  # sm_100
    block_m1: int | None = None  # triton, as the four below
    block_n1: int | None = None
    block_m2: int | None = None
    block_n2: int | None = None
    num_warps: int | None = None


class Tokamax(Family):
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "tokamax"
    title: ClassVar[str] = "tokamax attention (Pallas Mosaic GPU)"
    arches: ClassVar[tuple[str, ...]] = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120")
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    extra: ClassVar[str] = "jax"
    tunable: ClassVar[bool] = False

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return ForwardConfig if pass_name == "forward" else BackwardConfig  # noqa: S105 - not a password

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """What tokamax's heuristics start from; they shrink stages and blocks until shared memory suffices."""
        if pass_name == "forward":  # noqa: S105 - not a password
            return resources.forward_default(problem, arch)
        return resources.backward_default(problem, arch)

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}

    def resources(self, case: Case) -> tuple[Resource, ...]:
        return resources.table(case)


FAMILY = Tokamax()
