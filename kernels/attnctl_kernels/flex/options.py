"""What the options of a call come to: which kernel runs it, with which tile."""

from __future__ import annotations

from typing import Any, Literal

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Config, PassName, Scalar, SparseBlock
from attnctl_kernels.flex import tiles

Kernel = Literal["triton", "decode", "flash", "cpu", "mps", "eager"]
PREFIX = {"forward": "fwd_", "backward": "bwd_"}

FORWARD_TILE = ("BLOCK_M", "BLOCK_N", "num_stages", "num_warps")
BACKWARD_TILE = ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2", "num_stages", "num_warps")
_SWITCHES = {  # with what `flex_attention` sets where its caller does not
    "BACKEND": "AUTO",
    "PRESCALE_QK": False,
    "ROWS_GUARANTEED_SAFE": False,
    "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": True,
}
_PLAIN = (*dict.fromkeys((*FORWARD_TILE, *BACKWARD_TILE)), *_SWITCHES, "FORCE_USE_FLEX_ATTENTION", "USE_TMA")
_PREFIXED = (*(f"fwd_{name}" for name in FORWARD_TILE), *(f"bwd_{name}" for name in BACKWARD_TILE))
KERNEL_OPTIONS = (*_PLAIN, *_PREFIXED)


def kernel_options(config: Config, device_type: str) -> dict[str, Any]:
    """What `flex_attention` hands to the compiler for ``config``; the log-sum-exp is written as it is in training."""
    given = {name: value for name, value in config.items() if name in KERNEL_OPTIONS and value is not None}
    wants_lse = device_type != "cpu" and config.get("return_lse") is not False
    switches = {name: value for name, value in _SWITCHES.items() if name not in given}
    return {**given, **switches, "OUTPUT_LOGSUMEXP": wants_lse, "OUTPUT_MAX": False}


def of_pass(config: Config, pass_name: PassName) -> dict[str, Scalar]:
    """The options of one pass under their plain names: a prefixed form wins. Tiles of the other pass are left out."""
    own = FORWARD_TILE if pass_name == "forward" else BACKWARD_TILE  # noqa: S105 - not a password
    others = {*FORWARD_TILE, *BACKWARD_TILE, *_PREFIXED}.difference(own)
    chosen = {name: config.get(PREFIX[pass_name] + name, config.get(name)) for name in own}
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        **{name: value for name, value in config.items() if name not in own and name not in others},
    }


def is_forward(case: Case) -> bool:
    return case.pass_name == "forward"  # noqa: S105 - not a password


def written(case: Case, name: str) -> str:
    """The name under which an option of this pass stands: its prefixed form wins over the plain one."""
    prefixed = PREFIX[case.pass_name] + name
    return prefixed if prefixed in case.config and case.version != tiles.OLD else name


def option(case: Case, name: str) -> int | None:
    """An option as given; None: inductor chooses. Defaults in the config are those of the newest torch."""
    key = written(case, name)
    if case.version == tiles.OLD and key not in case.given:
        return None
    value = case.config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def switch(case: Case, name: str, default: bool = False) -> bool:
    return bool(case.config.get(name, default))


def device(case: Case) -> str:
    return str(case.config.get("device") or ("cuda" if case.arch else "cpu"))


def backend(case: Case) -> str:
    return "AUTO" if case.version == tiles.OLD else str(case.config.get("BACKEND", "AUTO"))


def kernel(case: Case) -> Kernel:
    if not switch(case, "compiled", default=True):
        return "eager"
    if device(case) in ("cpu", "mps"):
        return "cpu" if device(case) == "cpu" else "mps"
    asked = backend(case)
    if asked == "FLASH":
        return "flash"
    if not is_forward(case) or asked == "TRITON":
        return "triton"
    return "decode" if asked == "TRITON_DECODE" or decodes(case) else "triton"


def decodes(case: Case) -> bool:
    """Whether inductor prefers the decoding kernel, left to itself."""
    if case.version == tiles.OLD:
        return case.problem.seqlen_q < tiles.DECODE_BELOW and not switch(case, "FORCE_USE_FLEX_ATTENTION")
    return not obstacles_to_decoding(case)


def obstacles_to_decoding(case: Case) -> dict[str, str]:
    """Field -> why the decoding kernel of torch 2.13 cannot be used."""
    problem, found = case.problem, {}
    if switch(case, "FORCE_USE_FLEX_ATTENTION"):
        found["config.FORCE_USE_FLEX_ATTENTION"] = "FORCE_USE_FLEX_ATTENTION is set"
    if problem.seqlen_q >= tiles.DECODE_BELOW:
        found["problem.seqlen_q"] = f"seqlen_q {problem.seqlen_q} is not below {tiles.DECODE_BELOW}"
    if switch(case, "dynamic"):
        found["config.dynamic"] = "the batch size is dynamic"
    group = problem.num_heads_q // problem.num_heads_kv
    if not tiles.is_power_of_two(group):
        found["problem.num_heads_kv"] = f"{group} query heads per key head are not a power of two"
    heads = case.layout.num_heads if case.layout else None
    usable = (1,) if problem.num_heads_q != problem.num_heads_kv else (1, problem.num_heads_q)
    if heads is not None and heads not in usable:
        found["layout.num_heads"] = f"the mask has {heads} heads"
    if switch(case, "return_max_scores"):
        found["config.return_max_scores"] = "it does not return max_scores"
    return found


def sparse(case: Case) -> SparseBlock | None:
    """The blocks of the mask, as the kernel sees them; None where there is no mask or the size makes no sense."""
    if case.sparse_block is None or min(case.sparse_block) < 1:
        return None
    block_q, block_kv = case.sparse_block
    if case.version == tiles.OLD and case.problem.seqlen_q < tiles.DECODE_BELOW:
        return case.problem.seqlen_q, block_kv
    return block_q, block_kv


def forward_tile(case: Case) -> tiles.ForwardTile | None:
    """The tile of the main kernel; None where there is none."""
    if case.arch not in ARCHES or kernel(case) != "triton" or not is_forward(case):
        return None
    own = tiles.forward_default(case.problem, case.arch, case.version)
    return tiles.ForwardTile(*(option(case, name) or value for name, value in zip(FORWARD_TILE, own, strict=True)))


def backward_tile(case: Case) -> tiles.BackwardTile | None:
    """The tiles of the Triton backward kernel; None where that is not what runs."""
    if case.arch not in ARCHES or kernel(case) != "triton" or is_forward(case):
        return None
    own = tiles.backward_default(case.problem, case.arch, case.version)
    return tiles.BackwardTile(*(option(case, name) or value for name, value in zip(BACKWARD_TILE, own, strict=True)))
