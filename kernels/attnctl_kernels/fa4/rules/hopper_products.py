"""FA4-B026: the five matrix products of the backward kernel of sm_90."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.fa4.backward import Product, Sm90Backward, sm90_modelled, sm90_products
from attnctl_kernels.fa4.rules.values import runs_on_sm90
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

LAYOUTS = {"S": "AtomLayoutMSdP", "dK": "AtomLayoutNdKV", "dV": "AtomLayoutNdKV", "dQ": "AtomLayoutMdQ"}
SWAPS = {"S": "SdP_swapAB", "dK": "dKV_swapAB", "dV": "dKV_swapAB", "dQ": "dQ_swapAB"}


def modelled(case: Case) -> Sm90Backward | None:
    """The config, where the kernel takes the problem's type and head dimensions and FA4-B014 holds."""
    return sm90_modelled(case) if runs_on_sm90(case.problem) else None


@rule(
    "FA4-B026",
    passes=("backward",),
    arches=("sm_90",),
    why="a warp group computes 64 rows at a time; what is left over has no instruction, and tracing fails or aborts",
)
def product_is_not_whole_instructions(case: Case) -> Iterator[Violation]:
    """A product of the backward pass does not divide into matrix instructions of its warp groups (sm_90).

    What: S and dP are `tile_m` x `tile_n`, dK `tile_n` x head_dim, dV `tile_n` x head_dim_v, dQ `tile_m` x head_dim.
    Their first side is shared by `AtomLayoutMSdP`, `AtomLayoutNdKV`, `AtomLayoutMdQ` warp groups, the second by the
    others. Each group gets a multiple of 64 of the first, and 8 to 256 of the second in eights; with `SdP_swapAB`,
    `dKV_swapAB`, `dQ_swapAB` it is the other way around. `dKV_swapAB` pads the head dimensions to 64.

    Why: A wgmma has 64 rows for one warp group, and 8 to 256 columns. 80 rows of Q are not whole instructions, so that
    the kernel's own 80 x 128 computes S and dQ transposed.

    Fix: tile_m 80 with `dQ_swapAB: false` -> `dQ_swapAB: true`, or tile_m 64.
    """
    config = modelled(case)
    if config is None:
        return
    told = set()
    for product in sm90_products(case.problem, config):
        layout = LAYOUTS[product.result]
        if not product.divides and layout not in told:
            told.add(layout)
            fixes = tuple(_fixes(case.problem, config, product))
            advice = "" if fixes else "use 64 or 128 for both sides of the tile"
            yield Violation(f"config.{layout}", _explain(product), fixes, advice)


def _explain(product: Product) -> str:
    (rows, by_rows), (columns, by_columns) = product.instruction_rows, product.instruction_columns
    turned = ", transposed," if product.swapped else ""
    name = "S and dP" if product.result == "S" else product.result
    return f"{name} of {rows} x {columns}{turned} cannot be shared out by {by_rows} x {by_columns} warp groups"


def _fixes(problem: Problem, config: Sm90Backward, product: Product) -> Iterator[Fix]:
    """The changes to one parameter with which all products of the same layout divide."""
    layout, swap = LAYOUTS[product.result], SWAPS[product.result]
    groups = product.groups
    changes: list[tuple[str, Any]] = [
        (swap, not product.swapped),
        *((layout, each) for each in range(1, groups + 1) if groups % each == 0),
        *(
            (name, each)
            for name in ("tile_m", "tile_n")
            for step in (16, 64, 128)
            for each in nearest_multiples(getattr(config, name), step)
        ),
    ]
    offered = set()
    for name, value in changes:
        changed = replace(config, **{name: value})
        same = [each for each in sm90_products(problem, changed) if LAYOUTS[each.result] == layout]
        if name not in offered and value != getattr(config, name) and all(each.divides for each in same):
            offered.add(name)
            yield Fix(f"config.{name}", value)
