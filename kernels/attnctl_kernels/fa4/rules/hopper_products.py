"""FA4-B026 to B029: the five matrix products of the backward kernel of sm_90, and how warp groups share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.fa4.backward import Product, Sm90Backward, sm90_dims, sm90_modelled, sm90_products
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import runs_on_sm90
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

HOPPER = ("sm_90",)
STATISTICS_ROWS = 64
SHUFFLED_DIM = 64  # up to it threads share row statistics
LAYOUTS = {"S": "AtomLayoutMSdP", "dK": "AtomLayoutNdKV", "dV": "AtomLayoutNdKV", "dQ": "AtomLayoutMdQ"}
NAMED = {"S": "S and dP", "dK": "dK", "dV": "dV", "dQ": "dQ"}
SWAPS = {"S": "SdP_swapAB", "dK": "dKV_swapAB", "dV": "dKV_swapAB", "dQ": "dQ_swapAB"}


def modelled(case: Case) -> Sm90Backward | None:
    """The config, where the kernel takes the problem's type and head dimensions and FA4-B014 holds."""
    return sm90_modelled(case) if runs_on_sm90(case.problem) else None


@rule(
    "FA4-B026",
    passes=("backward",),
    arches=HOPPER,
    why="a warp group computes 64 rows at a time; where there are fewer, nothing is computed, or the same twice",
    upstream=("failed to partition `input` {} with `tiled_mma`", "assert cute.size(acc) == cute.size(tdQsdQaccum)"),
)
def product_is_not_whole_instructions(case: Case) -> Iterator[Violation]:
    """A product of the backward pass does not divide into matrix instructions of its warp groups (sm_90).

    What: S and dP are `tile_m` x `tile_n`, dK `tile_n` x head_dim, dV `tile_n` x head_dim_v, dQ `tile_m` x head_dim.
    Their first side is shared by `AtomLayoutMSdP`, `AtomLayoutNdKV`, `AtomLayoutMdQ` warp groups, the second by the
    others. Each group gets a multiple of 64 of the first, and 8 to 256 of the second in eights; with `SdP_swapAB`,
    `dKV_swapAB`, `dQ_swapAB` it is the other way around. `dKV_swapAB` pads the head dimensions to 64.

    Why: A wgmma has 64 rows for one warp group, and 8 to 256 columns. 80 rows of Q are not whole instructions, so that
    the kernel's own 80 x 128 computes S and dQ transposed. Mostly tracing fails. Where two warp groups share 64 rows of
    dK and dV it does not, and both compute them: right on an H200, and twice the work.

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

            def works(changed: Sm90Backward, layout: str = layout) -> bool:
                products = sm90_products(case.problem, changed)
                return all(each.divides for each in products if LAYOUTS[each.result] == layout)

            fixes = alone(config, _changes(config, product), works)
            advice = "" if fixes else "use 64 or 128 for both sides of the tile"
            yield Violation(f"config.{layout}", _explain(product), fixes, advice)


def _explain(product: Product) -> str:
    (rows, by_rows), (columns, by_columns) = product.instruction_rows, product.instruction_columns
    turned = ", transposed," if product.swapped else ""
    shares = f"{by_rows} x {by_columns} warp groups"
    return f"{NAMED[product.result]} of {rows} x {columns}{turned} cannot be shared out by {shares}"


def _changes(config: Sm90Backward, product: Product) -> Iterator[tuple[str, Any]]:
    """What a product depends on: its swap, its layout, and the tile."""
    yield SWAPS[product.result], not product.swapped
    yield from ((LAYOUTS[product.result], each) for each in range(1, product.groups + 1) if product.groups % each == 0)
    for name in ("tile_m", "tile_n"):
        for step in (16, 64, 128):
            yield from ((name, each) for each in nearest_multiples(getattr(config, name), step))


def alone(
    config: Sm90Backward, changes: Iterable[tuple[str, Any]], works: Callable[[Sm90Backward], bool]
) -> tuple[Fix, ...]:
    """Of each parameter the first change with which alone it works."""
    found: dict[str, Fix] = {}
    for name, value in changes:
        if name not in found and value != getattr(config, name) and works(replace(config, **{name: value})):
            found[name] = Fix(f"config.{name}", value)
    return tuple(found.values())


def _by_sixteen(product: Product) -> bool:
    columns, groups = product.instruction_columns
    return columns // groups % 16 == 0


@rule(
    "FA4-B027",
    passes=("backward",),
    arches=HOPPER,
    why="transposed, P and dS are stored 16 query rows at a time, and the gradients are silently wrong",
)
def query_rows_of_a_warp_group_are_an_odd_number_of_eights(case: Case) -> Iterator[Violation]:
    """With S transposed, a warp group's part of the query rows is an odd number of eights (sm_90).

    What: With `SdP_swapAB`, `tile_m` over `AtomLayoutMSdP` is a multiple of 16.

    Why: Of five eights the last has no partner, and nothing says so. On an H200 at head_dim 128, `tile_m: 80` with
    `AtomLayoutMSdP: 2` gave infinite or NaN dQ in all ten configs of a sweep, and `tile_m: 112` NaN in all gradients.
    Not transposed, parts of 40 and 56 keys were right.

    Fix: `tile_m: 80` with `AtomLayoutMSdP: 2` -> `tile_m: 64` or 96, or `AtomLayoutMSdP: 1`.
    """
    config = modelled(case)
    product = sm90_products(case.problem, config)[0] if config else None
    if config is None or product is None or not product.divides or _pairs_up(product):
        return

    def works(changed: Sm90Backward) -> bool:
        scores = sm90_products(case.problem, changed)[0]
        return scores.divides and _pairs_up(scores)

    rows = product.rows // product.groups_of_rows
    message = f"each warp group has {rows} query rows of S and dP, transposed, which is no multiple of 16"
    yield Violation("config.AtomLayoutMSdP", message, alone(config, _changes(config, product), works))


def _pairs_up(scores: Product) -> bool:
    return not scores.swapped or _by_sixteen(scores)


@rule(
    "FA4-B028",
    passes=("backward",),
    arches=HOPPER,
    why="the conversion of the sums stores 16 columns at a time; compiling it aborts the process (SIGABRT)",
)
def converted_sum_is_an_odd_number_of_eights(case: Case) -> Iterator[Violation]:
    """A warp group's part of dQ, or with grouped heads of dK and dV, is an odd number of 8 columns (sm_90).

    What: head_dim over the warp groups that share it is a multiple of 16; with `dQ_swapAB` it is `tile_m` over
    `AtomLayoutMdQ`. With grouped heads the same holds for dK and dV with `dKV_swapAB`, `tile_n` and `AtomLayoutNdKV`.

    Why: dQ is added up in float32, and converted by a kernel of its own, with a stmatrix of 16 columns. Where a warp
    group has 40, the compiler fails an assertion in C++ and takes the process with it: no exception can be caught.

    Fix: `tile_m: 80` with `dQ_swapAB: true`: `AtomLayoutMdQ: 2` -> 1.
    """
    config = modelled(case)
    if config is None:
        return
    for index in (1, 2, 3) if Call(case).group > 1 else (3,):
        product = sm90_products(case.problem, config)[index]
        if not product.divides or _by_sixteen(product):
            continue

        def works(changed: Sm90Backward, index: int = index) -> bool:
            converted = sm90_products(case.problem, changed)[index]
            return converted.divides and _by_sixteen(converted)

        columns, groups = product.instruction_columns
        message = f"each warp group has {columns // groups} columns of {product.result}, which is no multiple of 16"
        fixes = alone(config, _changes(config, product), works)
        yield Violation(f"config.{LAYOUTS[product.result]}", message, fixes)
        return


@rule(
    "FA4-B029",
    passes=("backward",),
    arches=HOPPER,
    why="the row statistics are dealt out to threads in chunks of 64 rows, which smaller parts have to divide",
    upstream=("unable to partition `input` '!cute.memref<f32, smem, align<8>, {}>' with tiled copy",),
)
def rows_do_not_share_statistics(case: Case) -> Iterator[Violation]:
    """With S transposed, a warp group has 40, 48 or 56 rows at a small head dimension (sm_90).

    What: With `SdP_swapAB`, up to head_dim 64, `tile_m` over `AtomLayoutMSdP` is at least 64, or divides 64.

    Why: Transposed, every thread needs the log-sum-exp of a quarter of the rows. Up to head_dim 64 eight threads share
    them and shuffle, in chunks of 16 values, that is 64 rows. 80 rows are a chunk and a part, which is padded; 40 rows
    are 10 values, and the copy of 16 cannot be partitioned.

    Fix: `tile_m: 96` with `AtomLayoutMSdP: 2` -> `AtomLayoutMSdP: 1`, or `tile_m: 64` or 128.
    """
    config = modelled(case)
    if config is None or _shares_statistics(case.problem, config):
        return

    def works(changed: Sm90Backward) -> bool:
        return _shares_statistics(case.problem, changed) and sm90_products(case.problem, changed)[0].divides

    tiles_m = (STATISTICS_ROWS, STATISTICS_ROWS * config.AtomLayoutMSdP)
    changes = [("AtomLayoutMSdP", 1), ("SdP_swapAB", False), *(("tile_m", each) for each in tiles_m)]
    rows = config.tile_m // config.AtomLayoutMSdP
    message = f"each warp group has {rows} rows of S, which at head_dim {case.problem.head_dim} cannot share statistics"
    yield Violation("config.AtomLayoutMSdP", message, alone(config, changes, works), "use tile_m 64 or 128")


def _shares_statistics(problem: Problem, config: Sm90Backward) -> bool:
    """Whether rows go evenly to threads, or are not shared: the kernel's ``shuffle_LSE``."""
    rows = config.tile_m // config.AtomLayoutMSdP
    shuffles = config.SdP_swapAB and sm90_dims(problem, config)[0] <= SHUFFLED_DIM
    return not shuffles or rows >= STATISTICS_ROWS or (rows > 0 and STATISTICS_ROWS % rows == 0)
