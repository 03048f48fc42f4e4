"""What a kernel family provides, and the words that the tool and the families share.

A family is one folder below ``attnctl_kernels`` (or an ``attnctl.families`` entry point):

``spec.py``
    ``FAMILY``, an instance of a :class:`Family` subclass: config models, parameter space, rules, resource
    model and the kernel's own default. Pure Python: `attnctl validate` imports it on machines without torch.
``launch.py``
    ``LAUNCHER``, a :class:`Launcher`: inputs -> compiled kernel -> call. Imported in worker processes only.

Shapes are written ``(batch_size, seqlen, num_heads, head_dim)`` everywhere; lengths count tokens, tiles count
rows, memory counts bytes, time carries its unit in the name.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

if TYPE_CHECKING:
    from attnctl_kernels.block_arrays import BlockArrays
    from attnctl_kernels.rule import Rule

PassName = Literal["forward", "backward"]
Pattern = Literal["dense", "causal", "sliding_window", "document", "prefix_lm", "history_candidate", "blocks"]
Dtype = Literal["float16", "bfloat16", "float32"]
Scalar = int | float | bool | str
Config = Mapping[str, Scalar]
SparseBlock = tuple[int, int]
LengthArray = Literal["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"]

TARGET_VARIABLE = "ATTNCTL_TARGET_ARCH"  # compile workers, which see no device: the arch that they compile for

DTYPE_BYTES: Mapping[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4}


class Outcome(StrEnum):
    """What happened to a candidate. Closed: a sweep never records anything else."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"
    LAUNCH_ERROR = "launch_error"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    WORKER_DIED = "worker_died"
    SKIPPED = "skipped"


class Frozen(BaseModel):
    """Immutable, strict, closed: the base of everything that crosses a file or a process boundary."""

    # Errors against a reference may be NaN: JSON's null would not load as a number again.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Mask(Frozen):
    """Which keys a query may see. ``masks.py`` gives each pattern its element predicate and block classes.

    Rows and columns are aligned at the end when ``seqlen_q != seqlen_k`` (query ``i`` sits at key position
    ``i + seqlen_k - seqlen_q``), as in FlashAttention.
    """

    pattern: Pattern = "dense"
    history_len: int | None = None  # history_candidate: keys [0, history_len) are history
    window: int | None = None  # sliding_window: a query sees itself and the window - 1 keys before it
    prefix_len: int | None = None  # prefix_lm: keys [0, prefix_len) are seen by all, the rest causally
    document_len: int | None = None  # document: all documents have this length (the last may be shorter)
    document_lens: tuple[int, ...] | None = None  # document: ragged lengths, summing to the sequence length
    causal: bool = False  # document: also causal inside each document
    block_size: SparseBlock | None = None  # blocks: rows and keys per listed block
    rows: tuple[tuple[int, ...], ...] | None = None  # blocks: per query block, the key blocks that it sees


_LATER = ("dtype_kv", "batch_size_kv", "varlen")


class Problem(Frozen):
    """One concrete attention call."""

    batch_size: int
    seqlen_q: int
    seqlen_k: int
    num_heads_q: int
    num_heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: Dtype
    mask: Mask = Mask()
    softmax_scale: float | None = None  # None: 1 / sqrt(head_dim)
    dtype_kv: Dtype | None = None  # of keys and values; None: dtype. Only families with ``kv_may_differ`` take it
    batch_size_kv: int | None = None  # likewise
    varlen: tuple[LengthArray, ...] | None = None  # arrays that say how long each sequence is; None: all are full

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Fields that came later are left out while unset: fingerprints and journals stay what they were."""
        return {name: value for name, value in handler(self).items() if name not in _LATER or value is not None}

    @property
    def element_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def slug(self) -> str:
        """Short and readable, for file names and tables; not unique (see :func:`fingerprint`)."""
        lengths = f"s{self.seqlen_q}" if self.seqlen_q == self.seqlen_k else f"q{self.seqlen_q}k{self.seqlen_k}"
        heads = (
            f"h{self.num_heads_q}"
            if self.num_heads_q == self.num_heads_kv
            else f"h{self.num_heads_q}kv{self.num_heads_kv}"
        )
        dims = f"d{self.head_dim}" if self.head_dim == self.head_dim_v else f"d{self.head_dim}v{self.head_dim_v}"
        return f"{self.mask.pattern}-b{self.batch_size}-{lengths}-{heads}-{dims}-{self.dtype}"


class Task(Frozen):
    """What is swept: one problem, one pass, one family, one arch."""

    family: str
    version: str | None
    arch: str | None
    pass_name: PassName
    problem: Problem
    seed: int = 0

    @property
    def fingerprint(self) -> str:
        """Every field that can change the best config; nothing else (no file name, no description)."""
        return fingerprint(self.model_dump(mode="json", exclude={"seed"}))


class Candidate(Frozen):
    """A config, with the sparse block it runs at, that may be measured."""

    config: dict[str, Scalar]
    sparse_block: SparseBlock | None = None

    @property
    def key(self) -> str:
        """Stable across runs and machines: the same config has the same key in every journal."""
        return fingerprint(self.model_dump(mode="json"))[:12]

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in self.config.items()]
        if self.sparse_block:
            parts.append(f"sparse_block={self.sparse_block[0]}x{self.sparse_block[1]}")
        return " ".join(parts)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical JSON of ``value``."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Layout:
    """Facts about block arrays that a program has already built."""

    num_blocks: int | None = None
    seq_len: int | None = None
    seqlen_q: int | None = None  # queries that they were built for, where that is said apart from the keys
    seqlen_k: int | None = None  # keys that they were built for
    batch_size: int | None = None  # first dimension of the arrays
    num_heads: int | None = None  # second dimension of the arrays
    index_width: int | None = None  # last dimension of the indices
    index_dtype: str | None = None
    has_full_blocks: bool | None = None  # whether full blocks have lists of their own
    max_index: int | None = None  # largest block number that is listed
    max_count: int | None = None  # longest list
    ascending: bool | None = None  # whether every list is in ascending order
    has_duplicates: bool | None = None  # whether a block is listed twice, also once as full and once as partial
    cu_total_m_blocks: bool | None = None  # these four: whether the array is there
    cu_block_idx_offsets: bool | None = None
    dq_write_order: bool | None = None
    dq_write_order_full: bool | None = None
    spt: bool | None = None  # the order that dq_write_order was built for
    backward_arrays: bool | None = None  # whether the backward pass has arrays of its own
    num_n_blocks: int | None = None  # rows of the backward arrays: blocks of keys
    backward_index_width: int | None = None
    cu_seqlens_dtype: str | None = None
    cu_seqlens_length: int | None = None
    seqused_length: int | None = None
    page_table_dtype: str | None = None
    page_table_rows: int | None = None
    out_dtype: str | None = None  # of an output that the caller brings
    out_strides: tuple[int, ...] | None = None  # in elements
    lse_dtype: str | None = None
    arrays: BlockArrays | None = None  # the arrays themselves, where a file of them is given


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at: one problem, one pass, and the config that would run it.

    ``config`` is complete: parameters that the profile leaves out carry the kernel's own default.
    ``given`` names the parameters that the profile wrote itself, and ``sparse_block`` if it wrote that; ``configs``
    and ``sparse_blocks`` hold all passes of the profile, for rules about two passes at once.
    """

    family: str
    version: str
    arch: str | None
    problem: Problem
    pass_name: PassName
    config: Config
    sparse_block: SparseBlock | None = None
    given: frozenset[str] = frozenset()
    passes: tuple[PassName, ...] = ("forward",)
    configs: Mapping[PassName, Config] = field(default_factory=dict)
    sparse_blocks: Mapping[PassName, SparseBlock | None] = field(default_factory=dict)
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """One line of the resource table: what a config takes of what the arch has."""

    name: str  # "shared memory", "registers per thread", ...
    used: int
    limit: int
    unit: str  # "bytes", "registers", "columns", "stages"

    @property
    def headroom(self) -> int:
        return self.limit - self.used


class Family(ABC):
    """A kernel implementation that can be checked and, where ``launch.py`` exists, tuned."""

    name: ClassVar[str]
    title: ClassVar[str]
    versions: ClassVar[tuple[str, ...]] = ("1",)  # newest last; a profile without a version gets the last
    arches: ClassVar[tuple[str, ...]] = ()  # empty: any device, and the profile may leave arch out
    passes: ClassVar[tuple[PassName, ...]] = ("forward",)
    flat_config: ClassVar[bool] = False  # True: one parameter object for all passes, in upstream's form
    extra: ClassVar[str] = "tune"  # the optional dependency group that brings the kernel
    tunable: ClassVar[bool] = True  # False: rules only
    kv_may_differ: ClassVar[bool] = False  # True: takes a problem's ``dtype_kv`` and ``batch_size_kv``
    varlen: ClassVar[bool] = False  # True: takes a problem's ``varlen``

    @abstractmethod
    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        """Strict model of this pass's parameters; every parameter optional (unset: the kernel's default)."""

    @abstractmethod
    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """The complete config that the kernel would pick by itself for this problem."""

    @abstractmethod
    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        """Parameter name -> values to try. ``sparse_block`` may be one of the names, with (q, kv) pairs."""

    def of_pass(self, config: Config, pass_name: PassName) -> dict[str, Scalar]:
        """What of a profile's ``config`` one pass goes by, under the names that the space has for it."""
        return dict(config)

    def canonical(self, config: Config, pass_name: PassName) -> dict[str, Scalar]:
        """``config`` without what holds anyway, so that two ways to write one config make one candidate."""
        return dict(config)

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """The sparse block that ``config`` runs at when the profile leaves it out; None: not block sparse."""
        return None

    def resources(self, case: Case) -> tuple[Resource, ...]:
        """What ``case`` takes of shared memory, registers, ...; empty where there is no model."""
        return ()

    def on_gpu(self, arch: str | None) -> bool:
        """Whether a profile with this ``arch`` is one for a GPU."""
        return arch is not None or bool(self.arches)

    def grid(self, case: Case) -> int | None:
        """Thread blocks that the kernel launches; None where that is not known. Small grids measure noisily."""
        return None

    def predicted_cost(self, case: Case) -> float:
        """Orders the queue, cheapest first; only comparisons within one task mean anything."""
        return 0.0

    def cannot_run(self, case: Case) -> str | None:
        """What the launcher would have to ignore in ``case``, as one clause; None: it runs what is written."""
        return None

    def cannot_compile(self, case: Case) -> str | None:
        """Why the launcher compiles nothing for ``case`` without a device, as one clause; None: it does."""
        return None if self.tunable else f"attnctl knows the rules of {self.name}, and has no launcher for it"

    def kernel_key(self, case: Case) -> Hashable:
        """Equal for cases of one config that run the same compiled kernel, so that it is compiled once."""
        return case.problem

    def sources(self) -> dict[str, str]:
        """Hashes of the kernel's sources as installed here, by the names they have in ``Launcher.versions``.

        Imports no kernel: a program that only reads its config compares them.
        """
        return {}

    def rules(self) -> Sequence[Rule]:
        """The family's rules: every :class:`Rule` in its ``spec`` and ``rules`` modules."""
        from attnctl_kernels.rule import rules_of_family  # noqa: PLC0415 - rule.py imports this module

        return rules_of_family(type(self).__module__)

    def launcher(self) -> Launcher:
        """Import ``launch.py``. Worker processes only: it brings torch, jax or cutlass with it."""
        import importlib  # noqa: PLC0415

        package = type(self).__module__.rpartition(".")[0]
        launcher: Launcher = importlib.import_module(f"{package}.launch").LAUNCHER
        return launcher


class Span(Frozen):
    """When a worker process was at something: Unix seconds."""

    lane: Literal["compile", "measure"]
    worker: int  # its process id
    begun: float
    ended: float


class Compiled(Frozen):
    """What compiling a candidate told us."""

    seconds: float
    binary: str | None = None  # hash of the device code, so that identical binaries are measured once
    resources: dict[str, int] = {}  # registers, local_bytes, smem_bytes, ... as the compiler reports them
    cached: bool = False  # it was on disk already; ``seconds`` is what finding it took
    span: Span | None = None  # set by the compile worker; None: compiled where it was measured


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensors of one task on the measuring device, each ``(batch_size, seqlen, num_heads, head_dim)``.

    Backward tasks carry ``out`` (the problem's dtype), ``lse`` (fp32, ``(batch_size, num_heads_q, seqlen_q)``)
    and ``dout``, computed once from the reference, so that a backward kernel is timed alone.
    """

    q: Any
    k: Any
    v: Any
    out: Any | None = None
    lse: Any | None = None
    dout: Any | None = None


class Call(Protocol):
    """A compiled kernel bound to inputs and to output buffers of its own.

    Where the kernel reads block lists, ``build_lists``, if there is one, makes them anew from the mask, as a program
    does whenever its mask changes. It is timed beside the kernel, and the kernel goes on reading the first ones.
    """

    def run(self) -> None:
        """Launch once. Asynchronous on a GPU. Allocates nothing that the kernel itself does not need."""

    def outputs(self) -> Mapping[str, Any]:
        """After ``run``: ``out`` and, where the kernel gives it, ``lse``; or ``dq``, ``dk``, ``dv``."""

    def poison(self) -> None:
        """Fill the output buffers with NaN, so that an element which ``run`` does not write is seen."""


class Launcher(Protocol):
    """``LAUNCHER`` in a family's ``launch.py``.

    With ``captures = True`` its calls do nothing but launch kernels, so that several can be recorded as one CUDA graph:
    kernels of a few microseconds are then timed that way.
    """

    framework: str  # "torch" or "jax": which worker environment runs it
    compiles: bool  # False: `compile` has nothing to do, so that no compile worker is started

    def warm_up(self) -> None:
        """Import whatever ``compile`` and ``bind`` will need: while a worker waits for its first request."""

    def available(self, arch: str | None) -> str | None:
        """None if the kernel can run here; otherwise one sentence saying what is missing.

        Raises:
            ModuleNotFoundError: a package is missing, which the family's ``extra`` brings.
        """

    def versions(self) -> dict[str, str]:
        """Kernel package, its source hash, compiler: what makes a tuned entry stale."""

    def compile(self, task: Task, candidate: Candidate) -> Compiled | None:
        """Compile without touching a GPU and fill the on-disk cache; None: nothing to compile ahead."""

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> Call:
        """Build masks and block lists, load or compile the kernel, allocate outputs."""


class OutOfResources(Exception):
    """A launcher raises this when the device refuses a launch for lack of shared memory or registers."""


class CompileError(Exception):
    """A launcher raises this when tracing or compiling a candidate fails."""


def join_words(values: Iterator[Any] | Sequence[Any], conjunction: str = "or") -> str:
    """``[768, 1024]`` -> ``768 or 1024``."""
    words = [str(value) for value in values]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
