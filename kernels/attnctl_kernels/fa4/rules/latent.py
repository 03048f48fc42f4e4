"""FA4-E013: multi-head latent attention, absorbed (`qv`)."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

LATENT_DIM, ROTARY_DIM, KEYS = 512, 64, 128


@rule(
    "FA4-E013",
    passes=("forward",),
    why="kernels of their own run it, for one shape",
    upstream=(
        "only support Blackwell arch with qv",
        "local not yet supported with qv",
        "block sparsity is not supported with qv",
        "scheduler_metadata is not supported with qv",
        "num_splits={} is not supported with gather_kv_indices",
        "paged KV + topk sparsity not yet supported together",
        "sparse MLA requires a single KV head",
        "gather_kv_indices is only supported with qv",
    ),
)
def latent_attention_not_possible(case: Case) -> Iterator[Violation]:
    """Multi-head latent attention in a form that its kernels do not have.

    What: With `qv`: sm_100, sm_103 or sm_110; head_dim_v 512 and head_dim 64 (512 where there is no rotary part);
    neither window nor softcap, score_mod, mask_mod nor block lists. With `gather_kv_length`, a multiple of 128: one
    key/value head, no pages and one split.

    Why: 512 columns of output fill tensor memory, so that these kernels share nothing with the others. Keys that are
    gathered come 128 at a time.

    Fix: `gather_kv_length: 1000` -> 1024, with -1 behind the last true index.
    """
    call, problem = Call(case), case.problem
    length = case.config.get("gather_kv_length")
    if not call.get("qv"):
        if length is not None:
            fix = Fix("config.gather_kv_length", None)
            yield Violation("config.gather_kv_length", "gather_kv_length needs qv", (fix,))
        return
    if not call.on_blackwell:
        fixes = (Fix("config.qv", None), *(Fix("arch", each) for each in tiles.BLACKWELL))
        yield Violation("config.qv", f"there is no kernel for qv on {case.arch}", fixes)
    if problem.head_dim_v != LATENT_DIM:
        message = f"qv needs head_dim_v {LATENT_DIM}, not {problem.head_dim_v}"
        yield Violation("problem.head_dim_v", message, (Fix("problem.head_dim_v", LATENT_DIM),))
    if problem.head_dim not in (ROTARY_DIM, LATENT_DIM):
        fix = Fix("problem.head_dim", ROTARY_DIM)
        yield Violation("problem.head_dim", f"qv needs head_dim {ROTARY_DIM}, not {problem.head_dim}", (fix,))
    for name in ("softcap", "score_mod", "mask_mod"):
        if case.config.get(name):
            yield Violation(f"config.{name}", f"{name} does not go with qv", (Fix(f"config.{name}", None),))
    if call.causal_and_local[1]:
        name = "window_left" if case.config.get("window_left") is not None else "window_right"
        fixes = (Fix(f"config.{name}", None),) if name == "window_left" or not case.config.get("causal") else ()
        yield Violation(f"config.{name}", "a window does not go with qv", fixes, "leave the window out")
    if call.sparse:
        fix = Fix("mask.pattern", "dense")
        yield Violation("mask.pattern", "block lists do not go with qv", (fix,), "use the native causal flag")
    if isinstance(length, int):
        yield from _of_gathered_keys(call, length)


def _of_gathered_keys(call: Call, length: int) -> Iterator[Violation]:
    field, problem = "config.gather_kv_length", call.case.problem
    if length < 1 or length % KEYS:
        near = nearest_multiples(length, KEYS) if length > 0 else (KEYS,)
        fixes = tuple(Fix(field, each) for each in near)
        yield Violation(field, f"gather_kv_length {length} is not a positive multiple of {KEYS}", fixes)
    if problem.num_heads_kv != 1:
        fix = Fix("problem.num_heads_kv", 1)
        yield Violation("problem.num_heads_kv", f"gathered keys have one head, not {problem.num_heads_kv}", (fix,))
    if call.page_size is not None:
        yield Violation("config.page_size", "pages do not go with gathered keys", (Fix("config.page_size", None),))
    if call.number("num_splits") > 1:
        message = f"num_splits {call.number('num_splits')} does not go with gathered keys"
        yield Violation("config.num_splits", message, (Fix("config.num_splits", 1),))
