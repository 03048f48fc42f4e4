"""FA4-E008 to E011: sinks, functions of scores, caps and windows."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.rule import Fix, Violation, rule

SINK_TYPES = ("float16", "bfloat16", "float32")
NARROW = (*tiles.AMPERE, "sm_90", "sm_120")  # arches whose threads hold two neighbouring scores at most
MOST_SCORES, MOST_MASKED = 2, 1


@rule(
    "FA4-E008",
    why="the kernel of sm_80 has no place where a sink would enter, and a sink is one number per query head",
    upstream=(
        "Learnable sink is not supported in this kernel",
        "learnable_sink must be float16, bfloat16, or float32",
        "Learnable sink backward is supported on SM90 and SM100/SM110",
    ),
)
def sink_not_supported(case: Case) -> Iterator[Violation]:
    """A learnable sink on an arch that has none, or of another type than the kernel reads.

    What: No `learnable_sink` on sm_80, sm_86, sm_89 and sm_120; elsewhere float16, bfloat16 or float32, of shape
    (num_heads_q,).

    Why: The sink is one more logit per head that takes part in the softmax and has no value. The kernel for sm_80
    asserts that there is none, once it is traced.

    Fix: `learnable_sink: true` on sm_90 and later, or leave it out.
    """
    sink = case.config.get("learnable_sink")
    if not sink:
        return
    if case.arch in (*tiles.AMPERE, "sm_120"):
        message = f"there is no learnable sink on {case.arch}"
        yield Violation("config.learnable_sink", message, (Fix("config.learnable_sink", None),), "use sm_90 or newer")
    elif isinstance(sink, str) and sink not in SINK_TYPES:
        fixes = tuple(Fix("config.learnable_sink", each) for each in SINK_TYPES)
        yield Violation("config.learnable_sink", f"learnable_sink is {sink}, not float16, bfloat16 or float32", fixes)


@rule(
    "FA4-E009",
    passes=("forward",),
    why="a cap is itself a function of scores, and threads of these kernels own few neighbouring scores",
    upstream=(
        "softcap and score_mod cannot be used together",
        "Custom user-provided score_mod is not supported on SM8x architectures.",
        "score_mod vec_size {} not supported on Sm80/90/120",
        "mask_mod vec_size {} not supported on Sm80/90/120",
    ),
)
def score_function_not_supported(case: Case) -> Iterator[Violation]:
    """A function of scores that the kernel cannot apply.

    What: `softcap` and `score_mod` are not both given; there is no `score_mod` on sm_80, sm_86 and sm_89; and on sm_80
    to sm_90 and sm_120 `score_mod_vec_size` is at most 2 and `mask_mod_vec_size` is 1.

    Why: A cap runs as a score_mod of the interface's own. A function that takes 4 neighbouring scores at once needs a
    thread that has 4: accumulators before sm_100 give a thread pairs.

    Fix: Put the cap inside score_mod, `cap * tanh(score / cap)`; a vector size of 1 or 2.
    """
    config = case.config
    if config.get("softcap") and config.get("score_mod"):
        fixes = (Fix("config.softcap", None), Fix("config.score_mod", None))
        yield Violation("config.softcap", "softcap and score_mod are both given", fixes, "cap inside the score_mod")
    if config.get("score_mod") and case.arch in tiles.AMPERE:
        message = f"there is no score_mod on {case.arch}"
        yield Violation("config.score_mod", message, (Fix("config.score_mod", None),))
    if case.arch in NARROW:
        for name, most in (("score_mod_vec_size", MOST_SCORES), ("mask_mod_vec_size", MOST_MASKED)):
            size = config.get(name)
            if isinstance(size, int) and size > most:
                message = f"{name} {size} is above {most}, the most on {case.arch}"
                yield Violation(f"config.{name}", message, (Fix(f"config.{name}", most),))


@rule("FA4-E010", why="only 0 means off: -1 caps scores at a magnitude of 1")
def softcap_is_negative(case: Case) -> Iterator[Violation]:
    """A cap below zero, which is not "no cap".

    What: `softcap` is above 0, or 0 or left out for no cap.

    Why: The score becomes `softcap * tanh(score / softcap)`, which is the same for 30 and -30. A -1 that was meant to
    turn the cap off squeezes all scores between -1 and 1, and nothing says so.

    Fix: -1 -> leave it out.
    """
    softcap = case.config.get("softcap")
    if isinstance(softcap, int | float) and softcap < 0:
        message = f"softcap {softcap:g} caps scores at {-softcap:g}, it does not turn the cap off"
        fixes = (Fix("config.softcap", None), Fix("config.softcap", -float(softcap)))
        yield Violation("config.softcap", message, fixes)


@rule("FA4-E011", why="only a missing bound is no bound, and causality sets the right one itself")
def window_is_not_what_it_says(case: Case) -> Iterator[Violation]:
    """A bound of the window is negative, or is lost to causality.

    What: `window_left` and `window_right` are 0 or more, or left out for no bound; both may be negative, which is no
    window. With `causal`, `window_right` is left out or 0.

    Why: In other libraries -1 is no bound. Here (-1, 0) sees nothing on the left, and not itself: every row of a window
    of -1 to 0 misses its diagonal's left neighbours. With `causal` a right bound of 128 becomes 0.

    Fix: (-1, 0) -> leave `window_left` out; that is causal.
    """
    if Call(case).masked:
        return  # FA4-B022
    bounds = {name: case.config.get(name) for name in ("window_left", "window_right")}
    values = [value for value in bounds.values() if isinstance(value, int)]
    if len(values) == 2 and max(values) < 0:
        return
    for name, value in bounds.items():
        field = f"config.{name}"
        if isinstance(value, int) and value < 0 and not (name == "window_right" and case.config.get("causal")):
            yield Violation(field, f"{name} {value} is an empty side, not one without a bound", (Fix(field, None),))
    right = bounds["window_right"]
    if case.config.get("causal") and isinstance(right, int) and right != 0:
        message = f"causal makes window_right 0, and {right} is lost"
        fixes = (Fix("config.window_right", None), Fix("config.causal", False)) if right > 0 else ()
        yield Violation("config.window_right", message, fixes or (Fix("config.window_right", 0),))
