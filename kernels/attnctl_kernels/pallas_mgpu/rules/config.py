"""PAL-C: what TuningConfig itself demands, whatever the problem is."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.pallas_mgpu.rules.values import (
    BACKWARD_BLOCKS,
    FORWARD_BLOCKS,
    GRANULE,
    granule_fixes,
    number,
)
from attnctl_kernels.rule import Fix, Violation, rule


@rule(
    "PAL-C001",
    why="a warp group multiplies 64 rows, and 64 16-bit elements fill one swizzled row",
    upstream=("self.block_q={} must be a multiple of 64", "self.block_kv={} must be a multiple of 64"),
)
def forward_block_not_a_multiple_of_64(case: Case) -> Iterator[Violation]:
    """A forward block is not a positive multiple of 64.

    What: `block_q` and `block_kv` are multiples of 64, and above 0. `block_q: 96` is refused when the TuningConfig
    is made; 0 and negative values pass upstream's check and fail later.

    Why: wgmma works on 64 rows per warp group, and shared memory is swizzled in rows of 128 bytes, which is 64
    elements of 16 bits.

    Fix: Take the multiple of 64 below or above: 96 -> 64 or 128.
    """
    for name in FORWARD_BLOCKS:
        yield from _granule(case, name)


@rule(
    "PAL-C002",
    why="keys and values need one stage to load while another is used",
    upstream=("self.max_concurrent_steps={} must be at least 2",),
)
def too_few_concurrent_steps(case: Case) -> Iterator[Violation]:
    """The ring of K and V tiles has fewer than two stages.

    What: `max_concurrent_steps` is at least 2; 1 is refused when the TuningConfig is made.

    Why: The loading warp group fills one stage while the compute groups read another. With one stage nothing
    overlaps.

    Fix: 1 -> 2. Each stage costs `2 * block_kv * head_dim` elements: 64 KiB at block_kv 128, head_dim 128.
    """
    steps = case.config.get("max_concurrent_steps")
    if isinstance(steps, int) and steps < 2:
        field = "config.max_concurrent_steps"
        yield Violation(field, f"max_concurrent_steps={steps} is below 2", (Fix(field, 2),))


@rule(
    "PAL-C003",
    why="one flag decides whether there is a backward pass",
    upstream=(
        (
            "Backward block sizes (block_q_dkv, block_kv_dkv, block_q_dq, block_kv_dq) must either all be specified or "
            "all be None."
        ),
    ),
)
def backward_blocks_incomplete(case: Case) -> Iterator[Violation]:
    """Some backward blocks are given and others are not.

    What: `block_q_dkv`, `block_kv_dkv`, `block_q_dq` and `block_kv_dq` are given together or not at all.

    Why: Upstream looks at `block_q_dkv` alone to decide whether a backward pass exists, so it refuses a half-filled
    TuningConfig when it is made, even for a forward pass.

    Fix: Add the missing ones, each a multiple of 64: with 128/64/128 given, `block_kv_dq: 64` completes them.
    """
    missing = [name for name in BACKWARD_BLOCKS if case.config.get(name) is None]
    if not missing or len(missing) == len(BACKWARD_BLOCKS):
        return
    there = [name for name in BACKWARD_BLOCKS if name not in missing]
    fixes = (Fix(f"config.{missing[0]}", GRANULE),) if len(missing) == 1 else ()
    verb = "is" if len(missing) == 1 else "are"
    yield Violation(
        f"config.{there[0]}",
        f"{join_words(missing, 'and')} {verb} missing beside {join_words(there, 'and')}",
        fixes,
        "" if fixes else "add " + join_words((f"{name}: {GRANULE}" for name in missing), "and"),
    )


@rule(
    "PAL-C004",
    why="a warp group multiplies 64 rows, and 64 16-bit elements fill one swizzled row",
    upstream=(
        "The accumulator's first dimension must be a multiple of 64, but got {}",
        "K must be a multiple of 64, got: {}",
        "attention_mgpu … Tiling {} does not apply to shape {}",
        "M must be a multiple of 64",
        "N must be a multiple of 8",
    ),
)
def backward_block_not_a_multiple_of_64(case: Case) -> Iterator[Violation]:
    """A backward block is not a positive multiple of 64.

    What: Each backward block is a multiple of 64, and above 0. `block_q_dq: 96` is rejected.

    Why: The backward kernels use the same 64-row wgmma and the same swizzle as the forward kernel. Upstream's
    dataclass checks only the forward blocks, so the fault shows up while the kernel is lowered, as the M or the K of a
    matrix product.

    Fix: Take the multiple of 64 below or above: 96 -> 64 or 128.
    """
    for name in BACKWARD_BLOCKS:
        yield from _granule(case, name)


@rule(
    "PAL-C005",
    why="the backward kernels divide their work by it",
    upstream=(
        "attention_mgpu … integer division or modulo by zero",
        "attention_mgpu … integer modulo by zero",
        "ranker_attention_fa3 … integer division or modulo by zero",
        "ranker_attention_fa3 … integer modulo by zero",
    ),
)
def no_backward_warp_group(case: Case) -> Iterator[Violation]:
    """There is no compute warp group in the backward kernels.

    What: `compute_wgs_bwd` is at least 1. 1 and 2 are what the kernels are written for; 3 leaves 152 registers per
    thread, which PAL-H003 counts.

    Why: Tile counts are divided by `block * compute_wgs_bwd`: 0 raises ZeroDivisionError inside the backward pass.

    Fix: 2 for head_dim up to 128, 1 above.
    """
    if number(case, "compute_wgs_bwd") == 0:
        field = "config.compute_wgs_bwd"
        best = 2 if case.problem.head_dim <= 128 else 1
        yield Violation(field, f"compute_wgs_bwd={case.config.get('compute_wgs_bwd')} is below 1", (Fix(field, best),))


def _granule(case: Case, name: str) -> Iterator[Violation]:
    value = case.config.get(name)
    if isinstance(value, int) and (value <= 0 or value % GRANULE):
        field = f"config.{name}"
        yield Violation(field, f"{name}={value} is not a positive multiple of {GRANULE}", granule_fixes(field, value))
