"""PAL-F009, F010 and F013: which of JAX's entries is called, what only one reads, and the scale that none applies."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Severity, Violation, rule


@rule(
    "PAL-F009",
    passes=("forward",),
    why="the emitter has one grid for all query tiles",
    upstream=(
        "Causal attention is not supported with the pipeline emitter yet.",
        "max_concurrent_steps must be greater than delay_release",
    ),
)
def pipeline_emitter_cannot_run_this(case: Case) -> Iterator[Violation]:
    """A mask with the pipeline emitter.

    What: With `pipeline_emitter: true` the mask is dense. Nor does that entry check that `block_kv` divides
    seqlen_k, which PAL-F005 demands of every entry.

    Why: The number of key tiles is fixed in the grid, and the ranker's entry takes no bounds: it computes full
    attention. The grid is rounded down: 1000 keys in blocks of 128 lose the last 104, without a message.

    Fix: `pipeline_emitter: false`, or a dense mask; 1000 keys -> 1024 with the rest masked.
    """
    pattern = case.problem.mask.pattern
    if case.config.get("pipeline_emitter") and pattern in ("causal", "history_candidate"):
        fixes = (Fix("config.pipeline_emitter", False),)
        yield Violation("config.pipeline_emitter", f"the pipeline emitter has no {pattern} mask", fixes)


@rule("PAL-F013", severity=Severity.WARNING, passes=("forward",), why="only the pipeline emitter reads it")
def schedule_barrier_without_effect(case: Case) -> Iterator[Violation]:
    """The schedule barrier is switched off where it cannot be.

    What: `use_schedule_barrier: false` stands beside `pipeline_emitter: true`.

    Why: `attention` takes turns on the tensor cores whatever the flag says: its kernel never reads it.

    Fix: `use_schedule_barrier: true`, which is what runs; or `pipeline_emitter: true`.
    """
    if case.config.get("use_schedule_barrier") is False and not case.config.get("pipeline_emitter"):
        fixes = (Fix("config.use_schedule_barrier", True), Fix("config.pipeline_emitter", True))
        yield Violation("config.use_schedule_barrier", "use_schedule_barrier=false has no effect", fixes)


@rule("PAL-F010", severity=Severity.WARNING, why="queries are expected to be scaled already")
def scale_not_applied(case: Case) -> Iterator[Violation]:
    """A softmax scale that JAX's kernel does not apply.

    What: For family `pallas_mgpu`, `softmax_scale` is left out or 1. The ranker's kernels take `sm_scale`, whose
    default is 1 as well.

    Why: JAX's attention has no argument for it and computes softmax(QK).

    Fix: Multiply the queries before the call, by 0.08838834764831845 at head_dim 128, and write `softmax_scale: 1.0`.
    `tune` and `bench` do so for any other scale, the default 1/sqrt(head_dim) too, and time it with the kernel.
    """
    scale = case.problem.softmax_scale
    if case.family == "pallas_mgpu" and scale is not None and scale != 1:
        message = f"softmax_scale={scale:g} is not applied"
        yield Violation("problem.softmax_scale", message, (Fix("problem.softmax_scale", 1.0, "scale the queries"),))
