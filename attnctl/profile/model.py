"""The profile, schema 1, as a model. Validated in pydantic's strict mode: types are as written, unknown keys errors.

The shorthands that a profile may use (one length for a list of them, one sparse block for all passes) are expanded
here, so that the rest of the tool sees one form.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from attnctl_kernels.contract import Dtype, LengthArray, Mask, PassName, SparseBlock

MAX_PROBLEMS = 10_000
MAX_HEAD_DIM = 65_536  # no kernel comes near; rules look for the next size that works
BUDGET_PATTERN = r"^[1-9][0-9]*(s|m|h)$"

PositiveInt: TypeAlias = Annotated[int, Field(gt=0)]
HeadDim: TypeAlias = Annotated[int, Field(gt=0, le=MAX_HEAD_DIM)]


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


def _named_pair(value: Any) -> Any:
    """``{q: 128, kv: 64}`` in either order is ``[128, 64]``."""
    return (value["q"], value["kv"]) if isinstance(value, dict) and value.keys() == {"q", "kv"} else value


def _per_pass(value: Any) -> Any:
    """One pair serves all passes."""
    one_pair = isinstance(value, tuple | list) or (isinstance(value, dict) and value.keys() == {"q", "kv"})
    return {"forward": value, "backward": value} if one_pair else value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedPair(Section):
    q: PositiveInt
    kv: PositiveInt


_ListOfLengths: TypeAlias = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=MAX_PROBLEMS)]
Lengths: TypeAlias = Annotated[
    _ListOfLengths, BeforeValidator(_one_or_more, json_schema_input_type=PositiveInt | _ListOfLengths)
]
_Pair: TypeAlias = tuple[PositiveInt, PositiveInt]
Pair: TypeAlias = Annotated[_Pair, BeforeValidator(_named_pair, json_schema_input_type=_Pair | NamedPair)]


class ProblemSection(Section):
    """The attention call. A list of lengths makes one problem per length."""

    batch_size: PositiveInt = 1
    seq_len: Lengths | None = None
    seqlen_q: Lengths | None = None
    seqlen_k: Lengths | None = None
    num_heads_q: PositiveInt
    num_heads_kv: PositiveInt | None = None
    head_dim: HeadDim
    head_dim_v: HeadDim | None = None
    dtype: Dtype = "bfloat16"
    softmax_scale: Annotated[float, Field(gt=0)] | None = None
    dtype_kv: Dtype | None = None
    batch_size_kv: PositiveInt | None = None
    varlen: tuple[LengthArray, ...] | None = None


class MaskSection(Mask):
    """The mask as a profile says it: its facts, or where they come from."""

    path: Annotated[str, Field(min_length=1)] | None = None  # document, blocks: a JSON file that holds the facts
    seed: Annotated[int, Field(ge=0)] | None = None  # document: lengths are drawn, with a mean of document_len


class SparseBlocks(Section):
    """Sparse block sizes, ``[q, kv]``, per pass."""

    forward: Pair | None = None
    backward: Pair | None = None


class LayoutSection(Section):
    """Facts about block arrays that a program has already built."""

    path: Annotated[str, Field(min_length=1)] | None = None
    num_blocks: PositiveInt | None = None
    seq_len: PositiveInt | None = None
    seqlen_q: PositiveInt | None = None
    seqlen_k: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    index_width: PositiveInt | None = None
    index_dtype: str | None = None
    has_full_blocks: bool | None = None
    max_index: Annotated[int, Field(ge=0)] | None = None
    max_count: Annotated[int, Field(ge=0)] | None = None
    ascending: bool | None = None
    has_duplicates: bool | None = None
    cu_total_m_blocks: bool | None = None
    cu_block_idx_offsets: bool | None = None
    dq_write_order: bool | None = None
    dq_write_order_full: bool | None = None
    spt: bool | None = None
    backward_arrays: bool | None = None
    num_n_blocks: PositiveInt | None = None
    backward_index_width: PositiveInt | None = None
    cu_seqlens_dtype: str | None = None
    cu_seqlens_length: PositiveInt | None = None
    seqused_length: PositiveInt | None = None
    page_table_dtype: str | None = None
    page_table_rows: PositiveInt | None = None
    out_dtype: str | None = None
    out_strides: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None
    lse_dtype: str | None = None


class GateSection(Section):
    """What `bench --gate` allows."""

    max_regression: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?%$")] = "5%"


class Profile(Section):
    """One hand-written profile. ``config`` and ``search`` hold the family's own names, checked by its models."""

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    description: str | None = None
    family: str
    version: str | None = None
    arch: str | None = None
    passes: Annotated[tuple[PassName, ...], Field(min_length=1)] = ("forward",)
    problem: ProblemSection
    mask: MaskSection = MaskSection()
    sparse_block: Annotated[
        SparseBlocks, BeforeValidator(_per_pass, json_schema_input_type=_Pair | NamedPair | SparseBlocks)
    ] = SparseBlocks()
    config: dict[str, Any] = {}
    layout: LayoutSection | None = None
    search: dict[str, Any] = {}
    gate: GateSection = GateSection()

    def sparse_block_of(self, pass_name: PassName) -> SparseBlock | None:
        """What the profile itself says; None where it leaves the choice to the family."""
        sparse_block: SparseBlock | None = getattr(self.sparse_block, pass_name)
        return sparse_block
