"""FLEX-020 to FLEX-023: what a tile may be on the target, whatever the mask is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.resources import forward_smem, usual
from attnctl_kernels.flex.rules.values import BACKWARD, FORWARD, field, is_given, smaller_tiles
from attnctl_kernels.rule import Fix, Severity, Violation, multiples_below, rule

MAX_WARPS = 32
_SIZES = tuple(each.name for each in (*FORWARD, *BACKWARD))


@rule(
    "FLEX-020",
    why="Triton's ranges are powers of two, and a product is at least 16 deep",
    upstream=("arange's range must be a power of 2", "Input shapes should have M >= {}, N >= {} and K >= {}"),
)
def tile_is_not_a_power_of_two(case: Case) -> Iterator[Violation]:
    """A tile is not a power of two of at least 16.

    What: Each `BLOCK_*`, with or without `fwd_` or `bwd_`, is 16, 32, 64, 128 or a larger power of two. `num_warps` is
    1, 2, 4, 8, 16 or 32, and `num_stages` at least 1.

    Why: Rows and columns of a tile are Triton ranges, and each is the inner dimension of one of the products.
    `BLOCK_M: 96` fails while the kernel is compiled, and where several tiles are tried it is dropped without a word.

    Fix: 96 -> 64 or 128. 6 warps -> 4 or 8.
    """
    prefix = "fwd_" if options.is_forward(case) else "bwd_"
    for name in (each for size in _SIZES for each in (size, prefix + size)):
        value = case.config.get(name)
        if isinstance(value, int) and (value < tiles.SMALLEST_TILE or not tiles.is_power_of_two(value)):
            message = f"{name} {value} is not a power of two of at least {tiles.SMALLEST_TILE}"
            yield Violation(f"config.{name}", message, _powers(f"config.{name}", value, tiles.SMALLEST_TILE))
    for name in ("num_warps", prefix + "num_warps"):
        value = case.config.get(name)
        if isinstance(value, int) and not (tiles.is_power_of_two(value) and value <= MAX_WARPS):
            fixes = _powers(f"config.{name}", min(value, MAX_WARPS + 1), 1)
            usable = tuple(each for each in fixes if each.value <= MAX_WARPS)
            yield Violation(f"config.{name}", f"{name} {value} is not a power of two up to {MAX_WARPS}", usable)
    for name in ("num_stages", prefix + "num_stages"):
        value = case.config.get(name)
        if isinstance(value, int) and value < 1:
            yield Violation(f"config.{name}", f"{name} {value} is below 1", (Fix(f"config.{name}", 1),))


def _powers(name: str, value: int, least: int) -> tuple[Fix, ...]:
    above = max(tiles.next_power_of_two(value), least)
    return tuple(Fix(name, each) for each in (above // 2, above) if each >= least and (each == above or value > least))


@rule(
    "FLEX-021",
    passes=("forward",),
    why="the compiler refuses the tile, and inductor has no other",
    upstream=(
        (
            "out of resource: shared memory, Required: {}, Hardware limit: {}. Reducing block sizes or `num_stages` "
            "may help."
        ),
        "No valid triton configs. OutOfResources: out of resource: shared memory, Required: {}, Hardware limit: {}.",
    ),
)
def tile_exceeds_shared_memory(case: Case) -> Iterator[Violation]:
    """The forward tile needs more shared memory than a block has.

    What: BLOCK_M * D + (num_stages - 1) * BLOCK_N * (D + Dv) elements fit into shared memory: 166912 bytes on sm_80,
    101376 on sm_86, sm_89 and sm_120, 232448 on sm_90 and sm_100. D and Dv are rounded up to powers of two. On sm_90
    with a 16-bit type and powers of two it is num_stages, not one less.

    Why: Queries stay, keys and values stream through a ring. head_dim 192 counts as 256. Inductor's own tiles were
    chosen on large GPUs: float32 at head_dim 128 on sm_89 needs 131072 bytes of 101376. A length that slipped into
    head_dim does the same: at head_dim 1024 no usual tile fits. torch 2.13 says nothing: it compiles the kernel again
    with `num_stages: 1` (`torch._inductor.config.triton.dynamic_disable_pipelining`). attnctl switches that off, so
    that a config is measured as it is written or not at all.

    Fix: head_dim 192/128 on sm_86: 64 x 64 with 3 stages -> `BLOCK_M: 128`, `BLOCK_N: 32`, `num_stages: 2`. The
    forward options are `BLOCK_M`, `BLOCK_N` and `num_stages`, or the same with `fwd_`.
    """
    yield from _over(case, certain=True)


@rule(
    "FLEX-022",
    severity=Severity.WARNING,
    why="what the compiler adds for the scores decides",
)
def tile_may_exceed_shared_memory(case: Case) -> Iterator[Violation]:
    """A tile probably needs more shared memory than a block has.

    What: Forward, as FLEX-021 with BLOCK_M * BLOCK_N elements and 8 bytes per row more. Backward, (BLOCK_N1 +
    (num_stages - 1) * BLOCK_M1) * (D + Dv) elements for dK and dV, and the same of BLOCK_M2 and BLOCK_N2 for dQ; on
    sm_90 num_stages, as in FLEX-021, and 8 bytes per row of BLOCK_M1 and stage but one.

    Why: The scores pass through shared memory between the two products in some kernels and stay in registers in
    others. Two users' messages agree with the sum to the byte: 139776 bytes at head_dim 192/128 (64 x 64, 3 stages,
    bfloat16), and 395520 at head_dim 1024 (32 x 16, 3 stages, float32).

    Fix: Fewer stages first, then a smaller tile: forward `BLOCK_M`, `BLOCK_N`; backward `bwd_BLOCK_M1`,
    `bwd_BLOCK_N1`, `bwd_BLOCK_M2`, `bwd_BLOCK_N2`.
    """
    yield from _over(case, certain=False)


def _over(case: Case, *, certain: bool) -> Iterator[Violation]:
    tile = options.forward_tile(case) or options.backward_tile(case)
    if tile is None or min(tile) < 1:
        return
    assert case.arch is not None  # else there is no tile
    limit = ARCHES[case.arch].smem_bytes

    def needed(tile: tiles.ForwardTile | tiles.BackwardTile) -> int:
        if isinstance(tile, tiles.BackwardTile):
            return _usual(case, tile)
        memory = forward_smem(case.problem, tile, case.arch)
        return memory.least if certain or memory.least > limit else memory.usual

    used = needed(tile)
    surely = isinstance(tile, tiles.ForwardTile) and forward_smem(case.problem, tile, case.arch).least > limit
    if used <= limit or surely != certain:
        return
    sizes = FORWARD if isinstance(tile, tiles.ForwardTile) else BACKWARD
    fixes = _fitting(case, tile, [each.name for each in sizes], lambda changed: _usual(case, changed) <= limit)
    first = sizes[1].name if isinstance(tile, tiles.ForwardTile) else sizes[0].name
    about = "at least" if certain else "about"
    shape = " x ".join(str(each) for each in tile[: len(sizes)])
    message = f"a tile of {shape} with {tile.num_stages} stages needs {about} {used} bytes of {limit} on {case.arch}"
    if case.problem.head_dim > tiles.MAX_TABLED_HEAD_DIM:
        known = f"{tiles.MAX_TABLED_HEAD_DIM}, the largest that inductor has tiles for"
        message += f"; head_dim {case.problem.head_dim} is above {known}"
    advice = "" if fixes else _smallest(case, tile, limit)
    yield Violation(field(case, first), message, tuple(fixes), advice)


def _usual(case: Case, tile: tiles.ForwardTile | tiles.BackwardTile) -> int:
    return usual(case.problem, tile, case.arch)


def _fitting(
    case: Case,
    tile: tiles.ForwardTile | tiles.BackwardTile,
    names: list[str],
    fits: Callable[[tiles.ForwardTile | tiles.BackwardTile], bool],
) -> list[Fix]:
    """Every single change that fits: fewer stages, then each side, the largest value of each."""
    fixes = []
    for name in ("num_stages", *names):
        value = getattr(tile, name.lower())
        smaller = multiples_below(value) if name == "num_stages" else smaller_tiles(value)
        fitting = next((each for each in smaller if fits(tile._replace(**{name.lower(): each}))), None)
        if fitting:
            fixes.append(Fix(field(case, name), fitting))
    return fixes


def _smallest(case: Case, tile: tiles.ForwardTile | tiles.BackwardTile, limit: int) -> str:
    sides = {name: tiles.SMALLEST_TILE for name in tile._fields if name.startswith("block")}
    least = _usual(case, tile._replace(**sides, num_stages=1))
    words = "with ".join(f"{name.upper()} {value} " for name, value in sides.items()).strip()
    return f"start from {words}" if least <= limit else f"no tile fits at head_dim {case.problem.head_dim}"


@rule(
    "FLEX-023",
    severity=Severity.WARNING,
    arches=("sm_90",),
    versions=("2.13",),
    why="Triton 3.7.1 was seen to corrupt results of such kernels on Hopper, though not on every run",
)
def small_tile_on_hopper(case: Case) -> Iterator[Violation]:
    """The config asks for a tile side of 16 or 32 on sm_90.

    What: On sm_90 each `BLOCK_*` of the config is 64 or more.

    Why: Kernels with two matrix products and a side of 16 or 32 were reported to access memory illegally, or to return
    wrong numbers now and then, with Triton 3.7.1 on H100 and H20: one reproduction takes 20 processes. Triton 3.5.1 and
    B200 are not affected. One good run proves little.

    Fix: 32 -> 64.
    """
    if options.kernel(case) in ("triton", "decode"):
        for each in FORWARD if options.is_forward(case) else BACKWARD:
            value = options.option(case, each.name)
            if value in (16, 32) and is_given(case, each.name):
                name = field(case, each.name)
                yield Violation(name, f"{each.name} is {value}", (Fix(name, 64),))
