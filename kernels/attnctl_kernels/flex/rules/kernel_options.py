"""FLEX-007 and FLEX-024: which options there are."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.flex import tiles
from attnctl_kernels.rule import Fix, Violation, rule

BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")
INTERNAL = ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX")
_LATER = ("BACKEND", "BLOCKS_ARE_CONTIGUOUS", "WRITE_DQ", "USE_TMA", "return_max_scores", "compute_dq_write_order")
_FIXED = ("num_warps", "num_stages")


@rule(
    "FLEX-007",
    why="upstream knows four backends, and sets some options itself",
    upstream=(
        "Invalid BACKEND value '{}'. Must be one of {}",
        "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION.",
        "OUTPUT_LOGSUMEXP must not be in kernel_options",
        "OUTPUT_MAX must not be in kernel_options",
    ),
)
def kernel_option_not_allowed(case: Case) -> Iterator[Violation]:
    """A backend that does not exist, or an option that may not be given.

    What: `BACKEND` is AUTO, TRITON, FLASH or TRITON_DECODE, in capitals, and does not stand beside
    `FORCE_USE_FLEX_ATTENTION: true`. `OUTPUT_LOGSUMEXP` and `OUTPUT_MAX` are not given.

    Why: `BACKEND: TRITON` is what `FORCE_USE_FLEX_ATTENTION` was. The two outputs follow from `return_lse` and
    `return_max_scores`, and from whether gradients are wanted.

    Fix: `BACKEND: triton` -> TRITON. `OUTPUT_LOGSUMEXP: true` -> `return_lse: true`.
    """
    backend = case.config.get("BACKEND")
    if backend is not None and backend not in BACKENDS:
        meant = [each for each in BACKENDS if each == str(backend).upper()] or list(BACKENDS)
        fixes = tuple(Fix("config.BACKEND", each) for each in meant)
        yield Violation("config.BACKEND", f"there is no BACKEND {backend}", fixes)
    if backend is not None and case.config.get("FORCE_USE_FLEX_ATTENTION"):
        name = "config.FORCE_USE_FLEX_ATTENTION"
        message = f"FORCE_USE_FLEX_ATTENTION stands beside BACKEND {backend}"
        yield Violation(name, message, (Fix(name, value=None),))
    for option in INTERNAL:
        if option in case.config:
            meant_option = "return_lse" if option == "OUTPUT_LOGSUMEXP" else "return_max_scores"
            message = f"{option} is set by FlexAttention itself"
            yield Violation(f"config.{option}", message, (Fix(f"config.{option}", value=None),), f"set {meant_option}")


@rule(
    "FLEX-024",
    versions=(tiles.OLD,),
    why="torch 2.5 passes what it does not know to the kernel, where it does nothing or clashes",
    upstream=(
        "got multiple values for keyword argument 'num_warps'",
        "got multiple values for keyword argument 'num_stages'",
    ),
)
def option_not_in_torch_2_5(case: Case) -> Iterator[Violation]:
    """An option that torch 2.5 does not have.

    What: In torch 2.5 there is no `BACKEND`, no prefix `fwd_` or `bwd_`, and `num_warps` and `num_stages` cannot be
    given. Tiles are `BLOCK_M`, `BLOCK_N`, and for the backward pass `BLOCK_M1`, `BLOCK_N1`, `BLOCK_M2` and `BLOCK_N2`.

    Why: Every option becomes a constant of the kernel. A name that the kernel does not read has no effect and raises
    no error; `num_warps` and `num_stages` are passed twice, which is a TypeError while inductor lowers the call.

    Fix: `bwd_BLOCK_M1: 64` -> `BLOCK_M1: 64`; leave the others out, or use torch 2.13.
    """
    for name in sorted(case.given & case.config.keys()):
        if name in _FIXED:
            fault = "is passed twice, which raises TypeError"
        elif name in _LATER or name.startswith(("fwd_", "bwd_")):
            fault = "has no effect"
        else:
            continue
        fixes = (Fix(f"config.{name}", value=None), Fix("version", "2.13"))
        yield Violation(f"config.{name}", f"{name} {fault} in torch 2.5", fixes)
