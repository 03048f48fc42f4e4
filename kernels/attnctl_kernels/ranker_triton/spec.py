"""Family ``ranker_triton``: the ranker's Triton kernels, whose versions are upstream's two modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Case, Family, PassName, Problem, Scalar, SparseBlock

V1, V2 = "ranker_attention", "ranker_attention_v2"


class MhaArguments(BaseModel):
    """Keyword arguments of `mha`. The mask gives `causal` and `window_len`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    block_q: int | None = None
    block_k: int | None = None
    block_q_fwd: int | None = None
    block_k_fwd: int | None = None
    block_q_bwd_dq: int | None = None
    block_k_bwd_dq: int | None = None
    block_q_bwd_dkv: int | None = None
    block_k_bwd_dkv: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None
    backward_pass_impl: str | None = None
    cap: float | None = None
    cap_method: str | None = None
    heads_repeated: bool | None = None  # keys and values are repeated to the query heads before the call
    history_segment_id: int | None = None
    padding_segment_id: int | None = None
    inference: bool | None = None  # mha_inference_gqa of the second module


class RankerTriton(Family):
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "ranker_triton"
    title: ClassVar[str] = "x-algorithm ranker attention, Pallas Triton"
    versions: ClassVar[tuple[str, ...]] = (V1, V2)
    arches: ClassVar[tuple[str, ...]] = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120")
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
    extra: ClassVar[str] = "jax"
    tunable: ClassVar[bool] = False

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return MhaArguments

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """The defaults of both modules; each rule reads those of its version."""
        return {
            "block_q": 128,
            "block_k": 128,
            "block_q_fwd": 128,
            "block_k_fwd": 128,
            "block_q_bwd_dq": 128,
            "block_k_bwd_dq": 16,
            "block_q_bwd_dkv": 16,
            "block_k_bwd_dkv": 128,
            "num_warps": 4 if problem.head_dim <= 64 else 8,
            "num_stages": 2,
        }

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}


def is_forward(case: Case) -> bool:
    return case.pass_name == "forward"  # noqa: S105 - not a password


def blocks(case: Case) -> dict[str, int]:
    """The blocks that this pass of this version reads, in pairs of queries and keys; those that make sense."""
    if case.version == V1:
        names: tuple[str, ...] = ("block_q", "block_k")
    elif is_forward(case):
        names = ("block_q_fwd", "block_k_fwd")
    else:
        names = ("block_q_bwd_dq", "block_k_bwd_dq", "block_q_bwd_dkv", "block_k_bwd_dkv")
    found = {name: case.config.get(name) for name in names}
    return {name: size for name, size in found.items() if isinstance(size, int) and size > 0}


FAMILY = RankerTriton()
