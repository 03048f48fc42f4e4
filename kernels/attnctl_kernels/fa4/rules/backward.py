"""FA4-B and FA4-S021: sparse blocks against the tiles of the backward kernel, which the kernel picks by itself."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.rules.values import block, number
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

REBUILD = "rebuild the mask"
SPARSE_ARCHES = ("sm_90", *tiles.BLACKWELL)


@rule(
    "FA4-B001",
    passes=("backward",),
    arches=tiles.AMPERE,
    why="the kernel exists, but the entry does not call it",
    upstream=("Unsupported compute capability. Supported: 9.x, 10.x, 11.x, 12.x",),
)
def backward_not_on_this_arch(case: Case) -> Iterator[Violation]:
    """A backward pass on an arch that has a forward pass only (sm_80, sm_86, sm_89).

    What: `passes: [forward]` on these arches.

    Why: flash-attn-4 4.0.0b36 refuses the backward call below sm_90.

    Fix: Train on sm_90 or newer, or with the family `flex`.
    """
    yield Violation("passes", f"there is no backward pass on {case.arch}", (Fix("passes", ("forward",)),))


@rule(
    "FA4-B002",
    passes=("backward",),
    arches=SPARSE_ARCHES,
    why="a backward query block is subtile_factor tiles, no more and no less",
    upstream=(
        "Block sparsity expects sparse_block_size_q={} for subtile_factor={}.",
        "Block sparsity expects sparse_block_size_q={} for q_subtile_factor={}.",
    ),
)
def query_block_is_not_the_subtiles(case: Case) -> Iterator[Violation]:
    """The sparse query block is not `subtile_factor` backward tiles.

    What: The first value of `sparse_block` is `subtile_factor * tile_m` of the backward config.

    Why: The backward pass walks query blocks per key tile, and each block in `subtile_factor` steps. With tile_m 64
    and a factor of 2 a block of 64 would be walked 64 rows too far.

    Fix: tile_m 64, factor 2: 64 -> 128; or `subtile_factor: 1`. Forward and backward may have separate masks:
    `sparse_block: {forward: [64, 128], backward: [128, 128]}`.
    """
    tile_m, factor, sparse_block = number(case, "tile_m"), number(case, "subtile_factor"), block(case)
    if not sparse_block or not tile_m or not factor or "subtile_factor" not in case.given:
        return
    block_q, block_kv = sparse_block
    if block_q != factor * tile_m:
        fixes = [Fix("sparse_block", (_block_of(case, factor, tile_m), block_kv), REBUILD)]
        if block_q % tile_m == 0:
            fixes.append(Fix("config.subtile_factor", block_q // tile_m))
        message = f"query blocks of {block_q} are not subtile_factor * tile_m = {factor} * {tile_m} = {factor * tile_m}"
        yield Violation("sparse_block", message, tuple(fixes))


def _block_of(case: Case, factor: int, tile_m: int) -> int:
    """``factor`` tiles; the kernel's own tile may be another one for that block than for the profile's."""
    size = factor * tile_m
    if "tile_m" in case.given or case.sparse_block is None:
        return size
    return factor * tiles.backward_tile(case.problem, case.arch, (size, case.sparse_block[1])).tile_m


@rule(
    "FA4-B003",
    passes=("backward",),
    arches=SPARSE_ARCHES,
    why="a backward query block is a whole number of tiles",
    upstream=("Block sparsity requires sparse_block_size[0] to be a multiple of tile_m={}; got {}.",),
)
def query_block_is_not_whole_backward_tiles(case: Case) -> Iterator[Violation]:
    """The sparse query block is not a whole number of backward tiles.

    What: The first value of `sparse_block` is a multiple of the backward `tile_m`: on sm_90 128 up to head_dim 64, 64
    above (80 at head_dim 97 to 128 where 80 divides the block); on sm_100, sm_103 and sm_110 128. FA4-B002 says it
    where the profile names a `subtile_factor`.

    Why: As FA4-B002: the number of tiles per block is the quotient.

    Fix: head_dim 64: 64 -> 128.
    """
    tile_m, sparse_block = number(case, "tile_m"), block(case)
    if not sparse_block or not tile_m or "subtile_factor" in case.given or sparse_block[0] % tile_m == 0:
        return
    block_q, block_kv = sparse_block
    fixes = tuple(Fix("sparse_block", (each, block_kv), REBUILD) for each in nearest_multiples(block_q, tile_m))
    message = f"query blocks of {block_q} are not a multiple of the backward tile_m {tile_m}"
    yield Violation("sparse_block", message, fixes)


@rule(
    "FA4-B004",
    passes=("backward",),
    arches=SPARSE_ARCHES,
    why="one key tile owns the gradients of its keys",
    upstream=(
        "Block sparsity expects sparse_block_size[1]={} for kv_subtile_factor={}.",
        "Block sparsity expects sparse_block_size[1] to be a multiple of tile_n={}; got {}.",
        "Block sparsity expects sparse_block_size[1]={} to match tile_n.",
    ),
)
def key_block_is_not_the_backward_tile(case: Case) -> Iterator[Violation]:
    """The sparse key block does not fit the backward key tile.

    What: On sm_90 the second value of `sparse_block` equals the backward `tile_n`: 128 up to head_dim 128, 96 up to
    192, 64 above. On sm_100, sm_103 and sm_110 it is a multiple of 128.

    Why: A program accumulates dK and dV of one tile; on sm_90 a block is one tile.

    Fix: head_dim 192: 128 -> 96.
    """
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    if sparse_block and tile_n and not _fits_keys(case, sparse_block[1], tile_n) and not _shared(case):
        block_q, block_kv = sparse_block
        near = (tile_n,) if case.arch == "sm_90" else nearest_multiples(block_kv, tile_n)
        message = f"key blocks of {block_kv} do not fit the backward tile_n {tile_n}"
        fixes = tuple(Fix("sparse_block", (block_q, each), REBUILD) for each in near)
        yield Violation("sparse_block", message, fixes)


@rule(
    "FA4-S021",
    passes=("backward",),
    arches=("sm_90",),
    why="the passes have different key tiles, and each takes one tile per block",
)
def key_block_suits_forward_only(case: Case) -> Iterator[Violation]:
    """One mask for both passes, with key blocks that the forward pass alone can take (sm_90).

    What: A `sparse_block` for both passes has key blocks of 128 up to head_dim 128, of 96 up to 192, of 64 above: the
    backward tile, to which the forward tile shrinks by itself.

    Why: Two separate tables choose the tiles. At head_dim 192 with head_dim_v 128 the forward pass takes blocks of
    128, and training fails in the backward pass, whose tile is 96.

    Fix: `sparse_block: [128, 96]`; or separate masks: `sparse_block: {forward: [128, 128], backward: [128, 96]}`.
    """
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    if not sparse_block or not tile_n or _fits_keys(case, sparse_block[1], tile_n) or not _shared(case):
        return
    block_q, block_kv = sparse_block
    forward_tile_n = case.configs["forward"].get("tile_n")
    message = f"key blocks of {block_kv} fit the forward tile_n {forward_tile_n}, not the backward tile_n {tile_n}"
    fixes = [Fix("sparse_block", (block_q, tile_n), REBUILD)]
    yield Violation("sparse_block", message, tuple(fixes))


def _fits_keys(case: Case, block_kv: int, tile_n: int) -> bool:
    return block_kv == tile_n if case.arch == "sm_90" else block_kv % tile_n == 0


def _shared(case: Case) -> bool:
    """Whether both passes use one mask, and its key blocks are those of the forward tile (sm_90)."""
    sparse_block = block(case)
    return (
        sparse_block is not None
        and case.arch == "sm_90"
        and case.sparse_blocks.get("forward") == sparse_block
        and case.configs["forward"].get("tile_n") == sparse_block[1]
    )
