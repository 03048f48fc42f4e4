"""FA4-B030 to B032: how the backward pass of sm_90 moves its results, in the kernel and in those around it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4.backward import Sm90Backward, sm90_products
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.fa4.rules.hopper_products import HOPPER, LAYOUTS, alone, modelled
from attnctl_kernels.rule import Fix, Violation, rule

PREPROCESS_THREADS = 256
COPIED = 4  # numbers in float32 that a thread copies at once
STORED = 8  # numbers in 16 bits that a thread stores at once


def _block(size: int) -> int:
    """Columns of a swizzled block of shared memory: the widest of 64, 32 and 16 that divides a row."""
    return math.gcd(64, size)


def _stores(case: Case, config: Sm90Backward) -> list[str]:
    """Those of dK and dV whose parts do not end where blocks of shared memory do."""
    if Call(case).group > 1 or config.dKV_swapAB:
        return []  # they are added up in float32, or stored by rows
    _, d_keys, d_values, d_queries = sm90_products(case.problem, config)
    # dK leaves through the room of K, which is laid out for its other use: as an operand of dQ.
    blocks = {"dK": _block(d_keys.columns // d_queries.groups_of_columns), "dV": _block(d_values.columns)}
    uneven = []
    for product in (d_keys, d_values):
        columns, block = product.columns // product.groups_of_columns, blocks[product.result]
        if product.divides and columns % block and block % columns:
            uneven.append(product.result)
    return uneven


@rule(
    "FA4-B030",
    passes=("backward",),
    arches=HOPPER,
    why="dK and dV leave through the shared memory of K and V, whose blocks two warp groups cannot share unevenly",
    upstream=("unable to partition `input` '!cute.memref<{}, smem, align<1024>, {}>' with tiled copy",),
)
def gradients_do_not_fill_blocks(case: Case) -> Iterator[Violation]:
    """A warp group's part of dK or dV does not fill blocks of shared memory (sm_90).

    What: Without grouped heads and without `dKV_swapAB`, the columns of dK and dV that a warp group has (head_dim over
    `num_wg / AtomLayoutNdKV`) are whole blocks, or a block is whole parts: blocks are of 64 columns, or of 32 or 16
    where only those divide head_dim.

    Why: At head_dim 96 blocks are 32 columns, and two warp groups with 48 each meet in the middle of one.

    Fix: `AtomLayoutNdKV: 2`, so that each warp group has all columns of half of the keys.
    """
    config = modelled(case)
    if config is None:
        return
    for result in _stores(case, config)[:1]:
        changes = (("AtomLayoutNdKV", config.num_wg), ("dKV_swapAB", True))
        fixes = alone(config, changes, lambda changed: not _stores(case, changed) and _divides(case, changed))
        message = f"two warp groups share a block of columns of {result}"
        yield Violation(f"config.{LAYOUTS[result]}", message, fixes, "" if fixes else "use tile_n 128")


def _divides(case: Case, config: Sm90Backward) -> bool:
    return all(each.divides for each in sm90_products(case.problem, config))


def _summed(case: Case, config: Sm90Backward) -> Iterator[tuple[str, str, int, int, int]]:
    """Sums in float32: result, its tile parameter, rows, padded columns, and threads of the kernel that converts it."""
    step = 64 if config.dKV_swapAB else 32
    dim = ceil_div(case.problem.head_dim, step) * step
    yield "dQ", "tile_m", config.tile_m, dim, 128 * config.num_wg_dQ
    if Call(case).group > 1:
        yield "dK and dV", "tile_n", config.tile_n, dim, 128 * config.num_wg


def _uneven(case: Case, config: Sm90Backward) -> Iterator[tuple[str, str, str]]:
    """Tile parameter, result, and what of it is not whole."""
    for result, name, rows, dim, threads in _summed(case, config):
        copied = math.lcm(threads, PREPROCESS_THREADS if result == "dQ" else 1) * COPIED
        stored = threads * STORED // math.gcd(128, dim)
        if rows * dim % copied:
            yield name, result, f"{rows} x {dim} numbers are not copied in whole steps of {copied}"
        elif rows % stored:
            yield name, result, f"{rows} rows are not stored in whole steps of {stored}"


@rule(
    "FA4-B031",
    passes=("backward",),
    arches=HOPPER,
    why="the kernels before and after copy whole steps, and do not look where a tile ends",
)
def sums_are_not_copied_in_whole_steps(case: Case) -> Iterator[Violation]:
    """A tile is not a whole number of steps of the kernels before and after the backward kernel (sm_90).

    What: `tile_m` times head_dim, rounded up to 32 (64 with `dKV_swapAB`), is a multiple of 1024, and of 512 per warp
    group that computes dQ. `tile_m` is a multiple of the rows that 128 threads per such warp group store at once, 8
    columns each: of 48 at head_dim 192 with three. With grouped heads `tile_n` likewise, with `num_wg`.

    Why: The preprocessing zeroes dQ and asserts that its copies are whole. The conversion stores rows in steps, up to
    the end of the sequence and not of the tile: two steps of 48 for 64 rows overwrite 32 rows of the next tile. On an
    H200, dQ was NaN at head_dim 192 with three warp groups, and nothing said so.

    Fix: head_dim 96: `tile_m: 80` -> 64 or 96. head_dim 192: `num_wg: 3` -> 2.
    """
    config = modelled(case)
    if config is None:
        return
    for name, result, what in _uneven(case, config):
        changes = [(name, each) for each in (64, 96, 128, 192)]
        changes += [("num_wg", 2)]
        fixes = alone(config, changes, lambda changed: _even(case, changed))
        yield Violation(f"config.{name}", f"{result}: {what}", fixes, "" if fixes else f"use {name} 64")


def _even(case: Case, config: Sm90Backward) -> bool:
    shared = not (config.num_wg % config.AtomLayoutMSdP or config.num_wg % config.AtomLayoutNdKV)
    return shared and not config.num_wg_dQ % config.AtomLayoutMdQ and not any(_uneven(case, config))


@rule(
    "FA4-B032",
    passes=("backward",),
    arches=HOPPER,
    why="the kernel and the conversion of its sums count other sizes per tile, and dQ is silently wrong",
)
def head_dim_is_padded_twice(case: Case) -> Iterator[Violation]:
    """A head dimension that the backward kernel pads to 16 and the kernels around it pad to 32 (sm_90).

    What: head_dim, rounded up to 16, is a multiple of 32; or `dKV_swapAB` is true, with which all pad to 64.

    Why: dQ is added up tile after tile in one array of float32. At head_dim 80 the kernel writes tiles of 80 columns,
    and the kernel that converts them reads tiles of 96. It compiles and runs with flash-attn-4 4.0.0b36's own choice:
    on an H200, the relative error of dQ was 1.2 to 1.3 at head_dim 40, 48, 72 and 80, and with grouped heads that of dK
    and dV too, where 64, 96, 144 and 160 had 0.002.

    Fix: Pad the heads to 96; or `dKV_swapAB: true`.
    """
    dim, config = case.problem.head_dim, modelled(case)
    if config is None or config.dKV_swapAB or ceil_div(dim, 16) % 2 == 0:
        return
    padded = ceil_div(dim, 32) * 32
    fixes = [Fix("problem.head_dim", padded, "zeros in Q and K")]
    fixes += alone(config, (("dKV_swapAB", True),), lambda changed: _divides(case, changed))
    message = f"head_dim {dim} is {ceil_div(dim, 16) * 16} to the backward kernel, and {padded} to the conversion of dQ"
    yield Violation("problem.head_dim", message, tuple(fixes))
