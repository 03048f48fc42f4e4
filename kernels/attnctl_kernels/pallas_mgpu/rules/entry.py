"""PAL-F009 and PAL-F010: which of JAX's entries is called, and the scale that none of them applies."""

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
    """A causal mask with the pipeline emitter.

    What: With `pipeline_emitter: true` the mask is not causal. Nor does that entry check that `block_kv` divides
    seqlen_k, which PAL-F005 demands of every entry.

    Why: The number of key tiles is fixed in the grid. It is rounded down: 1000 keys in blocks of 128 lose the last 104,
    without a message.

    Fix: `pipeline_emitter: false`, or a mask that is not causal; 1000 keys -> 1024 with the rest masked.
    """
    if case.config.get("pipeline_emitter") and case.problem.mask.pattern == "causal":
        fixes = (Fix("config.pipeline_emitter", False),)
        yield Violation("config.pipeline_emitter", "the pipeline emitter has no causal mask", fixes)


@rule("PAL-F010", severity=Severity.WARNING, why="queries are expected to be scaled already")
def scale_not_applied(case: Case) -> Iterator[Violation]:
    """A softmax scale that JAX's kernel does not apply.

    What: For family `pallas_mgpu`, `softmax_scale` is left out or 1. The ranker's kernels take `sm_scale`, whose
    default is 1 as well.

    Why: JAX's attention has no argument for it and computes softmax(QK).

    Fix: Multiply the queries before the call, by 0.08838834764831845 at head_dim 128, and write `softmax_scale: 1.0`.
    """
    scale = case.problem.softmax_scale
    if case.family == "pallas_mgpu" and scale is not None and scale != 1:
        message = f"softmax_scale={scale:g} is not applied"
        yield Violation("problem.softmax_scale", message, (Fix("problem.softmax_scale", 1.0, "scale the queries"),))
