"""How a mask is said to flash-attn-4: as an element predicate with block lists, or in the kernel's own form."""

from __future__ import annotations

from attnctl_kernels.contract import Config, Problem

BLOCKS, NATIVE = "blocks", "native"  # values of the parameter mask_form; blocks where it is left out
FORMS_OF_ITS_OWN = ("causal", "sliding_window")


def is_native(config: Config) -> bool:
    return config.get("mask_form") == NATIVE


def uses_lists(problem: Problem, config: Config) -> bool:
    """Whether the mask runs as block lists."""
    return problem.mask.pattern != "dense" and not is_native(config)


def native_arguments(problem: Problem) -> dict[str, bool | int]:
    """The mask in the words of flash-attn-4's entries; empty where every key is visible.

    Raises:
        ValueError: the kernel has no form of its own for the pattern (FA4-S023).
    """
    mask = problem.mask
    if mask.pattern == "causal":
        return {"causal": True}
    if mask.pattern == "sliding_window":
        return {"window_size_left": (mask.window or 1) - 1, "window_size_right": 0}
    if mask.pattern == "dense":
        return {}
    raise ValueError(f"flash-attn-4 has no form of its own for the pattern {mask.pattern}")
