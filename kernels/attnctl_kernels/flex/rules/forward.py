"""FLEX-001 and FLEX-019: the main kernel's tiles against the blocks of the mask."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import FORWARD, KEYS, REBUILD, ROWS, field, is_given, largest_tile, rebuilt
from attnctl_kernels.rule import Fix, Violation, length_fixes, rule

DIVISIBLE = 128  # what inductor divides lengths by, whatever the blocks are


@rule(
    "FLEX-001",
    passes=("forward",),
    why="a program handles one tile of queries with one row of the block lists, and visits whole tiles of keys",
    upstream=(
        "Q and KV block size must be divisible by BLOCK_M and BLOCK_N. We got Q_BLOCK_SIZE={} and KV_BLOCK_SIZE={}.",
    ),
)
def sparse_block_is_not_whole_tiles(case: Case) -> Iterator[Violation]:
    """The sparse block is not a whole number of forward tiles.

    What: The first value of `sparse_block` is a multiple of `BLOCK_M`, the second one of `BLOCK_N`; both are those of
    the config, or inductor's own: 128 and 64 for 16-bit head_dim 128 on sm_90.

    Why: Query tile t reads row t // (block_q / BLOCK_M) of the lists, and a listed block is block_kv / BLOCK_N steps.
    With one tile to try, inductor raises; with max_autotune it skips tiles that do not fit, and fails if none is left.
    torch 2.5 compares its own tile, and then asserts the same of the config's.

    Fix: `sparse_block: [96, 96]` with tiles of 64 -> [64, 64] or [128, 128], or tiles of 32. A block of 256 with tiles
    of 64 works: four tiles per block.
    """
    tile, block = options.forward_tile(case), options.sparse(case)
    if tile is None or block is None or min(tile) < 1 or any(_fit(block, each) for each in _choices(case, tile)):
        return
    limits = tile.block_m, tile.block_n
    wrong = [(option, limits[option.side]) for option in FORWARD if block[option.side] % limits[option.side]]
    faults = [
        f"{each.what} blocks of {block[each.side]} are not a multiple of {each.name} {limit}" for each, limit in wrong
    ]
    own_size = case.version == tiles.OLD and case.problem.seqlen_q < tiles.DECODE_BELOW  # whatever the profile says
    fixes = [] if own_size else list(rebuilt(block, *limits))
    fitting = [(each, largest_tile(block[each.side])) for each, _ in wrong]
    advice = ""
    if len(wrong) == 1:
        fixes += [Fix(field(case, each.name), value) for each, value in fitting if value]
    elif all(value for _, value in fitting):
        advice = " with ".join(f"{each.name} {value}" for each, value in fitting)
    if own_size and not advice:
        advice = f"pad the queries to {tiles.DECODE_BELOW}, or use torch 2.13"
    yield Violation("sparse_block", " and ".join(faults), tuple(fixes), advice)


def _choices(case: Case, tile: tiles.ForwardTile) -> list[tuple[int, int]]:
    """The tiles that inductor tries: what the config states stays as it is."""
    if not options.switch(case, "max_autotune"):
        return [(tile.block_m, tile.block_n)]
    tried = ((tile.block_m, tile.block_n), *tiles.AUTOTUNED_FORWARD)
    return [
        (tile.block_m if is_given(case, "BLOCK_M") else rows, tile.block_n if is_given(case, "BLOCK_N") else keys)
        for rows, keys in tried
    ]


def _fit(block: SparseBlock, tile: tuple[int, int]) -> bool:
    return block[ROWS] % tile[ROWS] == 0 and block[KEYS] % tile[KEYS] == 0


@rule("FLEX-019", why="inductor takes lengths that 128 divides for whole numbers of blocks, and leaves out all checks")
def tail_of_the_last_block_is_not_masked(case: Case) -> Iterator[Violation]:
    """Both lengths are multiples of 128 but not of the sparse block, and the tail of the last block is not masked.

    What: Where 128 divides seqlen_q and seqlen_k, the blocks do too: key blocks in both passes, query blocks in the
    backward pass, and a `BLOCK_M` above 128 in the forward pass.

    Why: Rows and keys behind the end are masked only if 128 does not divide one of the lengths. 384 tokens in blocks
    of 256 end in the middle of the second block. A row of the lists that names this block, and not all blocks, makes
    the kernel visit keys 384 to 511, those of the next head: in a full mask they count. In the backward pass the
    queries 384 to 511 add to dK and dV even under a causal mask, which hides late keys and not late queries. No
    message says so.

    Fix: `sparse_block: [128, 128]`, which divides whatever 128 divides; or pad 384 to 512 (33.3 % more tokens).
    """
    problem, block = case.problem, options.sparse(case)
    if options.kernel(case) != "triton" or problem.seqlen_q % DIVISIBLE or problem.seqlen_k % DIVISIBLE or not block:
        return
    lengths = {"seqlen_q": problem.seqlen_q, "seqlen_k": problem.seqlen_k}
    pair = tuple(
        size if length % size == 0 else DIVISIBLE for size, length in zip(block, lengths.values(), strict=True)
    )
    tile = options.forward_tile(case)
    for name, size, side in (("seqlen_q", block[ROWS], ROWS), ("seqlen_k", block[KEYS], KEYS)):
        length, change = lengths[name], Fix("sparse_block", pair, REBUILD)
        unit = f"{('query', 'key')[side]} blocks of {size}"
        if side == ROWS and tile:  # the forward grid counts tiles, and one of up to 128 rows divides the length
            size, unit = max(tile.block_m, DIVISIBLE), f"BLOCK_M {tile.block_m}"  # noqa: PLW2901
            change = Fix(field(case, "BLOCK_M"), DIVISIBLE)
        if side == KEYS and _names_all_blocks(case, block):
            continue
        if 0 < size < length and length % size:
            behind = length // size * size + size - length
            message = f"{name} {length} ends inside {unit}: {behind} rows behind the end are not masked"
            yield Violation(f"problem.{name}", message, (change, *length_fixes(f"problem.{name}", length, size)))


def _names_all_blocks(case: Case, block: SparseBlock) -> bool:
    """Whether the last row of the lists is the only one with the last key block, and names all others beside it.

    The loop then ends at the last tile that exists. Padded rows make every block of that row a partial one.
    """
    problem = case.problem
    same = problem.seqlen_q == problem.seqlen_k and block[ROWS] == block[KEYS]
    if not same or problem.mask.pattern not in ("causal", "sliding_window"):
        return False
    first_row = problem.seqlen_q // block[ROWS] * block[ROWS]
    window = problem.mask.window if problem.mask.pattern == "sliding_window" else None
    return window is None or first_row - window + 1 < block[KEYS]
