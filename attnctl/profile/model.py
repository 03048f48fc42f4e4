"""The profile, schema 1, as a model. Strict: types are as written, unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from attnctl_kernels.contract import Dtype, Mask, PassName, SparseBlock

PositiveInt = Annotated[int, Field(gt=0)]
Lengths = PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class Section(BaseModel):
    # Lists become tuples, so pydantic's own strict mode is too strict; the loader has already refused
    # every scalar whose YAML type is not the type that the field wants.
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemSection(Section):
    """The attention call. A list of lengths makes one problem per length."""

    batch_size: PositiveInt = 1
    seq_len: Lengths | None = None
    seqlen_q: Lengths | None = None
    seqlen_k: Lengths | None = None
    num_heads_q: PositiveInt
    num_heads_kv: PositiveInt | None = None
    head_dim: PositiveInt
    head_dim_v: PositiveInt | None = None
    dtype: Dtype = "bfloat16"
    softmax_scale: Annotated[float, Field(gt=0)] | None = None


class SparseBlocks(Section):
    """Sparse block sizes, ``[q, kv]``, where the passes differ."""

    forward: SparseBlock | None = None
    backward: SparseBlock | None = None


class LayoutSection(Section):
    """Facts about block arrays that a program has already built."""

    num_blocks: PositiveInt | None = None
    seq_len: PositiveInt | None = None


class GateSection(Section):
    """What `bench --gate` allows."""

    max_regression: str = "5%"


class Profile(Section):
    """One hand-written profile. ``config`` and ``search`` hold the family's own names, checked by its models."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    description: str | None = None
    family: str
    version: str | None = None
    arch: str | None = None
    passes: Annotated[tuple[PassName, ...], Field(min_length=1)] = ("forward",)
    problem: ProblemSection
    mask: Mask = Mask()
    sparse_block: SparseBlock | SparseBlocks | None = None
    config: dict[str, Any] = {}
    layout: LayoutSection | None = None
    search: dict[str, Any] = {}
    gate: GateSection = GateSection()
