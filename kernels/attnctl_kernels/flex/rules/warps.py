"""FLEX-030 and FLEX-031: too many warps for the rows of a tile, and too few."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.resources import ROWS_PER_GROUP, THREAD_REGISTERS, WARPS_PER_GROUP, Loop, loops
from attnctl_kernels.flex.rules.tile import MAX_WARPS
from attnctl_kernels.flex.rules.values import field, is_given, smaller_tiles
from attnctl_kernels.rule import Fix, Severity, Violation, rule

Tile = tiles.ForwardTile | tiles.BackwardTile


@rule(
    "FLEX-030",
    severity=Severity.WARNING,
    arches=("sm_90",),
    versions=("2.13",),
    why="a warp group multiplies 64 rows: two on the same 64 exchange maxima, sums and weights in every step",
)
def warp_groups_share_rows(case: Case) -> Iterator[Violation]:
    """There are more groups of four warps than 64 rows each.

    What: Of every product, num_warps / 4 * 64 is at most the rows: BLOCK_M forward; backward BLOCK_N1 of dK and dV, and
    BLOCK_M2 of dQ.

    Why: Products of sm_90 take 64 rows per warp group. Where a group has no rows of its own, two compute columns of the
    same ones: every maximum, every sum and the weights then pass through shared memory. Measured at head_dim 128 on an
    H200: 64 x 64 with 3 stages took 1762 us with four warps and 4111 us with eight; backward tiles of 64 in all four
    directions 1.5 to 2.2 times as long.

    Fix: num_warps 4, or 128 rows.
    """
    short = [
        (tile, loop) for tile, loop in _stated(case) if loop.rows < ROWS_PER_GROUP * _groups(tile) > ROWS_PER_GROUP
    ]
    if not short:
        return
    tile, loop = min(short, key=lambda each: each[1].rows)
    message = f"{tile.num_warps} warps are {_groups(tile)} groups for the {loop.rows} rows of {loop.rows_name}"
    fixes = [Fix(field(case, "num_warps"), max(loop.rows // ROWS_PER_GROUP, 1) * WARPS_PER_GROUP)]
    if len(short) == 1:
        fixes.append(Fix(field(case, loop.rows_name), ROWS_PER_GROUP * _groups(tile)))
    yield Violation(_to_blame(case, tile, loop), message, tuple(fixes))


@rule(
    "FLEX-031",
    severity=Severity.WARNING,
    arches=("sm_90",),
    versions=("2.13",),
    why="what does not fit into registers goes to local memory and comes back in every step",
)
def sums_exceed_registers(case: Case) -> Iterator[Violation]:
    """Sums and scores of a step do not fit into the registers of the warps.

    What: Elements of sums and scores / (32 * num_warps) is at most 256. They are BLOCK_M * (Dv + BLOCK_N) forward;
    backward BLOCK_N1 * (D + Dv + BLOCK_M1), and BLOCK_M2 * (D + BLOCK_N2).

    Why: A thread has 255 registers. Of 130 kernels at head_dim 128 on an H200 the 21 beyond this limit spilled at least
    784 bytes per thread, no other more than 456; forward they took 2.1 to 3.6 times as long as with eight warps.

    Fix: num_warps 8, or fewer rows.
    """
    for tile, loop in _stated(case):
        if loop.registers(tile.num_warps) > THREAD_REGISTERS:
            needed = f"{loop.registers(tile.num_warps):g} registers of {THREAD_REGISTERS - 1}"
            message = f"sums and scores of {loop.rows_name} {loop.rows} take {needed} with {tile.num_warps} warps"
            fixes = tuple(_eased(case, tile, loop))
            advice = "" if fixes else _start(case, tile)
            yield Violation(_to_blame(case, tile, loop), message, fixes, advice)
            return


def _stated(case: Case) -> Iterator[tuple[Tile, Loop]]:
    """The tile with each of its loops, where the profile or the candidate has a say in it."""
    tile = options.forward_tile(case) or options.backward_tile(case)
    if tile and min(tile) > 0 and any(is_given(case, name) for name in _names(tile)):
        yield from ((tile, loop) for loop in loops(case.problem, tile))


def _groups(tile: Tile) -> int:
    return tile.num_warps // WARPS_PER_GROUP


def _names(tile: Tile) -> list[str]:
    return [name.upper() if name.startswith("block") else name for name in tile._fields]


def _to_blame(case: Case, tile: Tile, loop: Loop) -> str:
    """Of what is written, what has most to do with it."""
    return next(field(case, name) for name in ("num_warps", loop.rows_name, *_names(tile)) if is_given(case, name))


def _eased(case: Case, tile: Tile, loop: Loop) -> Iterator[Fix]:
    def fits(rows: int, warps: int) -> bool:
        changed = tile._replace(**{loop.rows_name.lower(): rows, "num_warps": warps})
        return all(each.registers(warps) <= THREAD_REGISTERS for each in loops(case.problem, changed))

    more = (tile.num_warps << doubled for doubled in range(1, MAX_WARPS.bit_length()))
    warps = next((each for each in more if each <= MAX_WARPS and fits(loop.rows, each)), None)
    if warps:
        yield Fix(field(case, "num_warps"), warps)
    fewer = next((rows for rows in smaller_tiles(loop.rows) if fits(rows, tile.num_warps)), None)
    if fewer:
        yield Fix(field(case, loop.rows_name), fewer)


def _start(case: Case, tile: Tile) -> str:
    """Where no one change mends it."""
    for size in smaller_tiles(2 * ROWS_PER_GROUP):
        square = tile._replace(**{name: size for name in tile._fields if name.startswith("block")})
        if all(each.registers(tile.num_warps) <= THREAD_REGISTERS for each in loops(case.problem, square)):
            return f"start from tiles of {size} in all directions"
    return f"no tile fits {tile.num_warps} warps at head_dim {case.problem.head_dim}"
