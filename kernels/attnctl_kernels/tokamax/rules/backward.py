"""TOK-009 and TOK-010: what a backward Config may hold."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation, length_fixes, multiples_below, rule
from attnctl_kernels.tokamax.rules.fields import granule, positive
from attnctl_kernels.tokamax.values import (
    BLACKWELL,
    HOPPER,
    implementation,
    number,
    on_mosaic,
    up,
)

_VJP_BLOCKS = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")


@rule(
    "TOK-009",
    passes=("backward",),
    why="the backward kernels multiply 64 rows at a time too, and have one set of outputs",
    upstream=(
        "tokamax … Unexpected config: {}",
        "SM90 config required for sm90 GPUs.",
        "`normalize_output=False` not supported.",
        "`return_residuals` not supported.",
    ),
)
def backward_config_invalid(case: Case) -> Iterator[Violation]:
    """A parameter of the backward Config is out of range, or belongs to another arch.

    What: All four blocks are positive multiples of 64; `num_stages`, `compute_wgs` and `residual_stages` are at least
    1; `residual_stages` exists on sm_100 alone. The output is normalised, and residuals are not returned.

    Why: The Config checks `block_q_dkv` and `block_kv_dkv` for 64, and the other two for being positive only: 32 fails
    while the kernel is lowered.

    Fix: 32 -> 64.
    """
    if implementation(case) != "mosaic":
        return
    yield from granule(case, _VJP_BLOCKS)
    counts = ("num_stages", "compute_wgs")
    yield from positive(case, counts if case.arch in HOPPER else (*counts, "residual_stages"))
    if "residual_stages" in case.given and case.arch in HOPPER:
        name = "config.residual_stages"
        yield Violation(name, "residual_stages makes it a Config for sm_100", (Fix(name, value=None),))
    if case.config.get("normalize_output") is False:
        name = "config.normalize_output"
        yield Violation(
            name, "gradients of an output that is not normalised are not supported", (Fix(name, value=True),)
        )
    if case.config.get("return_residuals"):
        name = "config.return_residuals"
        yield Violation(name, "the backward pass returns no residuals", (Fix(name, value=False),))


@rule(
    "TOK-010",
    passes=("backward",),
    arches=BLACKWELL,
    why="each length is padded for one of the two kernels, and the other counts whole blocks of its own",
)
def backward_blocks_leave_a_tail(case: Case) -> Iterator[Violation]:
    """One backward kernel does not reach the end of the sequence (sm_100).

    What: Keys, padded to `block_kv_dkv`, hold whole blocks of `block_kv_dq` up to the last real key; queries, padded
    to `block_q_dq`, hold whole blocks of `block_q_dkv`. It is enough that `block_kv_dkv` is a multiple of
    `block_kv_dq` and `block_q_dq` one of `block_q_dkv`.

    Why: The dQ kernel walks padded keys // block_kv_dq blocks, rounded down, and the dKV kernel padded queries //
    block_q_dkv. 1088 keys with blocks of 64 for dKV and 128 for dQ: 8 blocks, and the last 64 keys give dQ nothing. No
    message says so.

    Fix: `block_kv_dkv: 128` with `block_kv_dq: 128` or 64.
    """
    problem = case.problem
    if not on_mosaic(case):
        return
    sides = (
        ("seqlen_k", problem.seqlen_k, "block_kv_dkv", "block_kv_dq"),
        ("seqlen_q", problem.seqlen_q, "block_q_dq", "block_q_dkv"),
    )
    for name, length, padding, walked in sides:
        unit, step = number(case, padding), number(case, walked)
        if not unit or not step:
            continue
        reached = up(length, unit) // step * step
        if reached < length:
            fitting = next(each for each in multiples_below(min(step, unit) + 1) if unit % each == 0)
            message = f"{walked} {step} reaches {reached} of {length} ({name} is padded to {padding} {unit})"
            fixes = (Fix(f"config.{walked}", fitting), *length_fixes(f"problem.{name}", length, step))
            yield Violation(f"config.{walked}", message, fixes)
