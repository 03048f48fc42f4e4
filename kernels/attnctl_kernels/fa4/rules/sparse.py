"""FA4-S: how sparse blocks and the tiles of the forward kernel fit together."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import resources, tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import TILES_N, block, nearest, number
from attnctl_kernels.rule import Fix, Severity, Violation, nearest_multiples, rule

REBUILD = "rebuild the mask"
SHOWN = 6  # values that a message lists


@rule(
    "FA4-S007",
    passes=("forward",),
    arches=("sm_90",),
    why="one row of the block lists serves whole tiles of queries",
    upstream=("have block size {}, which must be a multiple of {}.",),
)
def query_block_is_not_whole_tiles(case: Case) -> Iterator[Violation]:
    """A sparse query block is not a whole number of query tiles (sm_90).

    What: The first value of `sparse_block` is a multiple of `tile_m`. Where the profile names no `tile_m`, the kernel
    goes down to 64 rows by itself if 64 divides the block.

    Why: The kernel finds a tile's row in the lists by dividing the tile's number. A tile across two query blocks would
    need two rows.

    Fix: 96 with the kernel's own tile of 128 -> 128. 64 with `tile_m: 128` -> 128, or `tile_m: 64`.
    """
    tile_m = number(case, "tile_m")
    sparse_block = block(case)
    if not sparse_block or not tile_m or sparse_block[0] % tile_m == 0:
        return
    block_q, block_kv = sparse_block
    fixes = [Fix("sparse_block", (each, block_kv), REBUILD) for each in nearest_multiples(block_q, tile_m)]
    if "tile_m" in case.given:
        smaller = (each for each in reversed(tiles.SM90_TILES_M) if block_q % each == 0)
        fixes += [Fix("config.tile_m", each) for each in smaller][:1]
    message = f"query blocks of {block_q} are not a multiple of tile_m {tile_m}"
    yield Violation("sparse_block", message, tuple(fixes))


@rule(
    "FA4-S008",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="one sparse block is read as whole tiles of keys",
    upstream=(
        "require BLOCK_SIZE_KV to be a multiple of {}.",
        "Block sparsity requires sparse_block_size[1] to be a multiple of tile_n={}.",
    ),
)
def key_block_is_not_whole_tiles(case: Case) -> Iterator[Violation]:
    """A sparse key block is not a whole number of key tiles (sm_100, sm_103, sm_110).

    What: The second value of `sparse_block` is a multiple of `tile_n`, which is 128 unless the profile says otherwise.

    Why: An entry of the lists stands for block_kv / tile_n key tiles. Releases before July 2026 took one tile per
    block only.

    Fix: 192 with `tile_n` 128 -> 128 or 256.
    """
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    if sparse_block and tile_n and sparse_block[1] % tile_n:
        block_q, block_kv = sparse_block
        fixes = tuple(Fix("sparse_block", (block_q, each), REBUILD) for each in nearest_multiples(block_kv, tile_n))
        yield Violation("sparse_block", f"key blocks of {block_kv} are not a multiple of tile_n {tile_n}", fixes)


@rule(
    "FA4-S009",
    passes=("forward",),
    arches=("sm_90",),
    why="the sm_90 kernel takes one key tile per sparse block",
    upstream=(
        "Block sparsity requires sparse_block_size[1]={} to match tile_n={}.",
        "Coarse KV blocks (kv_subtile_factor > 1) are not supported on the SM90 forward path yet.",
    ),
)
def key_block_is_not_the_key_tile(case: Case) -> Iterator[Violation]:
    """The sparse key block has another size than the `tile_n` of the profile (sm_90).

    What: The second value of `sparse_block` equals `tile_n`. FA4-S010 is the rule for profiles without `tile_n`.

    Why: An index of the lists is used as the number of a key tile. Only the kernels for sm_100, sm_103 and sm_110 split
    a block into several tiles.

    Fix: `sparse_block: [128, 128]` for `tile_n: 128`; or the `tile_n` of the mask at hand; or leave `tile_n` out, and
    the kernel shrinks its tile to a smaller block.
    """
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    if sparse_block and tile_n and "tile_n" in case.given and sparse_block[1] != tile_n:
        block_q, block_kv = sparse_block
        fixes = [Fix("sparse_block", (block_q, tile_n), REBUILD)]
        if _can_be_tile_n(case, block_kv):
            fixes.append(Fix("config.tile_n", block_kv))
        yield Violation("sparse_block", f"key blocks of {block_kv} do not match tile_n {tile_n}", tuple(fixes))


@rule(
    "FA4-S010",
    passes=("forward",),
    arches=("sm_90",),
    why="the kernel shrinks its own key tile to the block, and never widens it",
)
def key_block_has_no_tile(case: Case) -> Iterator[Violation]:
    """None of the kernel's own key tiles matches the sparse key block (sm_90).

    What: Where the profile names no `tile_n`, the second value of `sparse_block` is a multiple of 16 up to the kernel's
    own: 128 up to head_dim 128 (144 for head_dim 65 to 96 where 192 divides the query block); 128, or 112 if
    head_dim_v is above 128, up to head_dim 192; and 80 above.

    Why: As FA4-S009. FlexAttention's usual 128 x 128 is refused at head_dim 256.

    Fix: head_dim 256: 128 -> 80, or 64, which the backward pass takes as well (FA4-S021). Or state a `tile_n` that
    equals the block, where shared memory has room for it.
    """
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    if not sparse_block or not tile_n or "tile_n" in case.given or sparse_block[1] == tile_n:
        return
    block_q, block_kv = sparse_block
    legal = tiles.legal_block_kv(case.problem, block_q)
    fixes = [Fix("sparse_block", (block_q, each), REBUILD) for each in nearest(block_kv, legal)]
    if _can_be_tile_n(case, block_kv):
        fixes.append(Fix("config.tile_n", block_kv))
    listed = ", ".join(str(each) for each in legal[-SHOWN:])
    more = " and smaller multiples of 16" if len(legal) > SHOWN else ""
    message = f"no key tile matches key blocks of {block_kv}; legal at head_dim {case.problem.head_dim}: {listed}{more}"
    yield Violation("sparse_block", message, tuple(fixes))


@rule(
    "FA4-S011",
    passes=("forward",),
    arches=("sm_90",),
    severity=Severity.WARNING,
    why="half as many rows share each load of K and V, and one warp group has nothing to overlap with",
)
def query_block_halves_the_tile(case: Case) -> Iterator[Violation]:
    """The query block makes the kernel go down to tiles of 64 rows (sm_90).

    What: Where the profile names no `tile_m`, the first value of `sparse_block` is a multiple of the kernel's own: 128,
    or 192 up to head_dim 96 where 192 divides the block.

    Why: The kernel then runs with 64 rows and a single warp group that computes, and reads K and V twice as often.

    Fix: 64 -> 128.
    """
    sparse_block = block(case)
    if not sparse_block or "tile_m" in case.given:
        return
    block_q, block_kv = sparse_block
    own = tiles.sm90_forward_tile(case.problem.head_dim, case.problem.head_dim_v, block_q).tile_m
    if block_q % own and block_q % tiles.WARP_GROUP_ROWS == 0:
        fixes = tuple(Fix("sparse_block", (each, block_kv), REBUILD) for each in nearest_multiples(block_q, own))
        yield Violation("sparse_block", f"query blocks of {block_q} make the kernel use tile_m 64, not {own}", fixes)


@rule(
    "FA4-S012",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="a program handles q_stage query tiles at once, with one row of the block lists",
    upstream=("have block size {}, which must be a multiple of {}.",),
)
def query_block_is_not_whole_stages(case: Case) -> Iterator[Violation]:
    """A sparse query block is not a whole number of staged query tiles (sm_100, sm_103, sm_110).

    What: The first value of `sparse_block` is a multiple of `q_stage * tile_m`: 256 where seqlen_q * num_heads_q /
    num_heads_kv (seqlen_q alone with `pack_gqa: false`) is above 128 and head_dim_v is not 256, and 128 otherwise.

    Why: The kernel picks q_stage 2 by itself as soon as there are more rows than one tile. FlexAttention's usual 128 x
    128 is refused.

    Fix: `sparse_block: [256, 128]`.
    """
    tile_m, sparse_block = number(case, "tile_m"), block(case)
    stages = Call(case).q_stage
    if sparse_block and tile_m and sparse_block[0] % (stages * tile_m):
        block_q, block_kv = sparse_block
        near = nearest_multiples(block_q, stages * tile_m)
        message = f"query blocks of {block_q} are not a multiple of q_stage * tile_m = {stages} * {tile_m}"
        fixes = tuple(Fix("sparse_block", (each, block_kv), REBUILD) for each in near)
        yield Violation("sparse_block", message, fixes)


@rule(
    "FA4-S013",
    passes=("forward",),
    arches=("sm_90", *tiles.BLACKWELL),
    why="several block sizes give the same number of rows, and the kernel would split the mask at the wrong one",
    upstream=("require explicit sparse_block_size[0] to disambiguate block size for seqlen_q={} and num_m_blocks={}.",),
)
def block_size_ambiguous(case: Case) -> Iterator[Violation]:
    """Prebuilt block arrays come without the block size that they were built for.

    What: Where `layout.num_blocks` is given, `sparse_block` is too, unless one size alone fits, and whole query tiles
    make it up.

    Why: 2 rows over 256 queries fit every block size from 128 to 255. Arrays built for 192 look the same as arrays
    built for 128, and mask the wrong queries. One row over 100 queries is taken for a block of 100, which is refused.

    Fix: State `sparse_block`, and pass `block_size` with the arrays.
    """
    count = case.layout.num_blocks if case.layout else None
    if count is None or "sparse_block" in case.given or not Call(case).sparse:
        return
    seqlen_q = case.problem.seqlen_q
    smallest, largest = -(-seqlen_q // count), seqlen_q if count == 1 else (seqlen_q - 1) // (count - 1)
    if count > 1 and smallest < largest:
        message = f"{count} rows over {seqlen_q} queries fit every query block from {smallest} to {largest}"
    elif smallest == largest and smallest % (Call(case).q_stage * number(case, "tile_m") or 1):
        message = (
            f"{count} rows over {seqlen_q} queries are taken for query blocks of {smallest}, not whole query tiles"
        )
    else:
        return
    derived = block(case)
    fits = derived and -(-seqlen_q // derived[0]) == count
    fixes = (Fix("sparse_block", derived),) if fits else ()
    yield Violation("layout.num_blocks", message, fixes, "state the sparse_block that the arrays were built for")


@rule(
    "FA4-S016",
    passes=("forward",),
    arches=tiles.AMPERE,
    why="the kernel never reads the block lists: the result is that of a full mask, without a message",
)
def block_lists_ignored(case: Case) -> Iterator[Violation]:
    """Block sparsity on an arch whose kernel ignores it (sm_80, sm_86, sm_89).

    What: On these arches there is no `sparse_block`.

    Why: flash-attn-4 accepts the lists if the key block is 64 and computes dense attention. Nothing says so.

    Fix: sm_90 or newer; or the family `flex`.
    """
    if case.sparse_block and "sparse_block" in case.given:
        yield Violation(
            "sparse_block", f"there is no block sparsity on {case.arch}", advice="use sm_90, or family flex"
        )


@rule(
    "FA4-S017",
    arches=("sm_120",),
    why="it is not implemented",
    upstream=(
        "Block sparsity not supported on SM 12.0",
        "Block sparsity backward not supported on SM 12.0",
        "SM120 forward does not support paged KV or block sparsity",
    ),
)
def block_lists_refused(case: Case) -> Iterator[Violation]:
    """Block sparsity on sm_120.

    What: On sm_120 there is no `sparse_block`.

    Why: The kernel for sm_120 is that of sm_80 with less shared memory; its entry refuses block lists.

    Fix: The family `flex`.
    """
    if case.sparse_block and "sparse_block" in case.given:
        yield Violation("sparse_block", f"there is no block sparsity on {case.arch}", advice="use family flex")


def _can_be_tile_n(case: Case, width: int) -> bool:
    tile_m = number(case, "tile_m")
    if width not in TILES_N or tile_m not in tiles.SM90_TILES_M:
        return False
    config = {**case.config, "tile_n": width}
    return resources.smem_bytes(case.problem, config) <= resources.SMEM_LIMIT and resources.assembles(
        case.problem, config
    )
