"""Family ``flex``: FlexAttention's kernels for Triton, flash-attn-4, CPU and MPS, with the options of one call."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Config, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.flex import cost, options, resources, space, tiles

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


OLDEST_RUN = "2.11"  # the oldest torch whose operators attnctl calls
_INDUCTOR = ("template_heuristics/triton.py", "codegen/cpp_flex_attention_template.py")


class _Anything:
    def __contains__(self, value: object) -> bool:
        return True


_ANYTHING = _Anything()

# What a call may say of itself without being another call than the one that attnctl runs.
_AS_RUN: Mapping[str, tuple[Scalar, ...]] = {
    "enable_gqa": (True, False),  # FLEX-006 says where it is needed
    "return_lse": (True, False),
    "return_max_scores": (False,),
    "needs_lse_grad": (False,),
    "captured_tensors_need_grad": (False,),
    "captured_scalars": (False,),
    "separate_full_blocks": (True,),
    "compute_dq_write_order": (False,),
    "sliced_mask": (False,),
    "compiled": (True,),
    "dynamic": (False,),
    "max_autotune": (False,),
    "deterministic": (False,),
}


class Flex(Family):
    """One GPU kernel per pass, and the C++ kernel where the profile names no arch."""

    name: ClassVar[str] = "flex"
    title: ClassVar[str] = "PyTorch FlexAttention"
    versions: ClassVar[tuple[str, ...]] = VERSIONS
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
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
            return dict(zip(options.BACKWARD_TILE, backward, strict=True))
        if problem.seqlen_q < tiles.DECODE_BELOW:
            return {}
        forward = tiles.forward_default(problem, arch, VERSIONS[-1])
        return dict(zip(options.FORWARD_TILE, forward, strict=True))

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        if arch is None:
            return space.on_cpu(problem)
        return space.forward(problem) if pass_name == "forward" else space.backward(problem)  # noqa: S105 - not a password

    def of_pass(self, config: Config, pass_name: PassName) -> dict[str, Scalar]:
        """Without prefixes, and without the tiles of the other pass."""
        return options.of_pass(config, pass_name)

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """`create_block_mask`'s default; a call without a mask has one block that is larger than any sequence."""
        dense = problem.mask.pattern == "dense"
        return None if dense else (tiles.DEFAULT_SPARSE_BLOCK, tiles.DEFAULT_SPARSE_BLOCK)

    def resources(self, case: Case) -> tuple[Resource, ...]:
        return resources.table(case)

    def grid(self, case: Case) -> int | None:
        forward, backward = options.forward_tile(case), options.backward_tile(case)
        problem = case.problem
        if forward:
            return -(-problem.seqlen_q // forward.block_m) * problem.num_heads_q * problem.batch_size
        if backward:
            queries = -(-problem.seqlen_q // backward.block_m2) * problem.num_heads_q
            keys = -(-problem.seqlen_k // backward.block_n1) * problem.num_heads_kv
            return (queries + keys) * problem.batch_size
        return None

    def predicted_cost(self, case: Case) -> float:
        return cost.predicted_cost(case)

    def cannot_run(self, case: Case) -> str | None:
        """Calls that differ from the one which attnctl makes."""
        problem = case.problem
        if case.version == tiles.OLD:
            return f"version is {case.version}, and attnctl calls what torch {OLDEST_RUN} and later have"
        for name in ("dtype_kv", "batch_size_kv"):
            if getattr(problem, name) is not None:
                return f"problem.{name} is {getattr(problem, name)}, and attnctl has inputs of one type and batch size"
        if case.config.get("BACKEND") == "FLASH":
            return "config.BACKEND is FLASH, which is the kernel of family fa4"
        for name, value in case.config.items():
            if value is not None and value not in self._runs(name, case):
                return f"config.{name} is {value}, which attnctl does not pass to the kernel"
        return None

    def _runs(self, name: str, case: Case) -> Container[Scalar]:
        """The values of an option that the launcher heeds."""
        if name in ("device", "mask_device"):
            return ("cpu" if case.arch is None else "cuda",)
        if name in options.KERNEL_OPTIONS:
            return () if case.arch is None else _ANYTHING
        return _AS_RUN.get(name, ())

    def cannot_compile(self, case: Case) -> str | None:
        return "the C++ kernel is compiled on the machine that runs it" if case.arch is None else None

    def sources(self) -> dict[str, str]:
        """Of inductor's templates, lowerings and tables of tiles, as far as FlexAttention has to do with them."""
        from importlib.util import find_spec  # noqa: PLC0415 - validate does without these

        found = find_spec("torch")
        if found is None or found.origin is None:
            return {}
        import hashlib  # noqa: PLC0415

        inductor = Path(found.origin).parent / "_inductor"
        digest = hashlib.sha256()
        for path in (*sorted((inductor / "kernel/flex").rglob("*.*")), *(inductor / each for each in _INDUCTOR)):
            if path.suffix in (".py", ".jinja") and path.is_file():
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return {"flex-sources": digest.hexdigest()[:16]}


FAMILY = Flex()
