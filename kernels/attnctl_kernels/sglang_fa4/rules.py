"""SGL: how sparse blocks and forward tiles fit together in sglang's fork."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

MAX_TILE_N = 256  # columns of a wgmma
BIAS_GRANULE = 128
SM90_TILES_M = (192, 128, 64)
HEAD_DIM_GRANULE = 8  # 16 bytes
MAX_HEAD_DIM = 256
DTYPES = ("bfloat16", "float16")


@rule(
    "SGL-001",
    passes=("forward",),
    why="the lists of key blocks are read as lists of key tiles",
    upstream=(
        "Block sparse tensors{} require BLOCK_SIZE_KV={}.",
        "Block sparsity requires sparse_block_size[1]={} to match tile_n.",
    ),
)
def key_block_is_not_the_key_tile(case: Case) -> Iterator[Violation]:
    """The sparse key block has another size than the key tile.

    What: The second value of `sparse_block` equals `tile_n`, on every arch. A mask with key blocks of 64 is refused
    by a kernel with `tile_n: 128`.

    Why: The kernel uses an index from the mask as the number of a key tile. The fork neither splits a block into
    several tiles, as flash-attn-4 4.0.0b36 does on Blackwell, nor shrinks the tile to the block, as it does on
    Hopper.

    Fix: Rebuild the mask with the tile's size: `sparse_block: [128, 128]` for `tile_n: 128`. Where the block is
    smaller than the tile, `tile_n: 64` works too.
    """
    tile_n = case.config.get("tile_n")
    if case.sparse_block is None or not isinstance(tile_n, int) or tile_n < 1:
        return
    block_q, block_kv = case.sparse_block
    if block_kv != tile_n:
        fixes = [Fix("sparse_block", (block_q, tile_n), "rebuild the mask")]
        if block_kv % 16 == 0 and block_kv < tile_n <= MAX_TILE_N:
            fixes.append(Fix("config.tile_n", block_kv))
        yield Violation("sparse_block", f"key blocks of {block_kv} do not match tile_n={tile_n}", tuple(fixes))


@rule(
    "SGL-002",
    passes=("forward",),
    arches=("sm_90",),
    why="one row of the block lists serves whole tiles of queries",
    upstream=("have block size {}, which must be a multiple of {}.",),
)
def query_block_is_not_whole_tiles(case: Case) -> Iterator[Violation]:
    """A sparse query block is not a whole number of query tiles (Hopper).

    What: The first value of `sparse_block` is a multiple of `tile_m`, which is 192 for head_dim up to 96 with query
    blocks that 192 divides, and 128 otherwise. Query blocks of 64 are refused.

    Why: The fork does not shrink the tile to the mask, as flash-attn-4 4.0.0b36 does.

    Fix: 64 -> 128, or `tile_m: 64`.
    """
    tile_m = case.config.get("tile_m")
    if isinstance(tile_m, int):
        yield from _ragged_query_block(case, tile_m, f"tile_m={tile_m}")


@rule(
    "SGL-003",
    passes=("forward",),
    arches=("sm_100", "sm_103", "sm_110"),
    why="one row of the block lists serves all stages of a tile of queries",
    upstream=("have block size {}, which must be a multiple of {}.",),
)
def query_block_is_not_whole_stages(case: Case) -> Iterator[Violation]:
    """A sparse query block is not a whole number of staged query tiles (Blackwell).

    What: The first value of `sparse_block` is a multiple of `q_stage * tile_m`. `q_stage` is 2 as soon as `seqlen_q
    * num_heads_q / num_heads_kv` is above 128, so query blocks are multiples of 256.

    Why: A program handles `q_stage` tiles at once. The fork counts the heads of a group as rows even where it does
    not pack them: 64 queries with 8 query heads per key head make 512 rows, and two stages.

    Fix: `sparse_block: [256, 128]`.
    """
    tile_m, stages = case.config.get("tile_m"), case.config.get("q_stage")
    if isinstance(tile_m, int) and isinstance(stages, int):
        yield from _ragged_query_block(case, tile_m * stages, f"q_stage * tile_m = {stages} * {tile_m}")


@rule(
    "SGL-004",
    passes=("forward",),
    why="the fork's own features work with some configs only",
    upstream=(
        "learnable_sink must be bfloat16",
        "for relative bias, require causal or window length == rel_extent",
        "for relative bias, require causal (with possibly shifted diagonal) or window length == rel_extent",
    ),
)
def feature_of_the_fork_not_supported(case: Case) -> Iterator[Violation]:
    """A sink, a relative bias or block scales that this config cannot have.

    What: `learnable_sink` is bfloat16. `rel_extent` is a multiple of 128, with tiles of 128 x 128, and a window, where
    the mask is one, has that length. With `block_scaled`, `q_stage` is 1.

    Why: The fork adds these features to a kernel of an older release. What it does not refuse with a message fails
    while it is traced.

    Fix: Cast the sink to bfloat16; `rel_extent` 1000 -> 1024 with `window: 1024`.
    """
    config, mask = case.config, case.problem.mask
    sink, extent = config.get("learnable_sink"), config.get("rel_extent")
    if isinstance(sink, str) and sink != "bfloat16":
        field = "config.learnable_sink"
        yield Violation(field, f"learnable_sink is {sink}, not bfloat16", (Fix(field, "bfloat16"),))
    if isinstance(extent, int):
        if extent < 1 or extent % BIAS_GRANULE:
            fixes = tuple(Fix("config.rel_extent", each) for each in nearest_multiples(max(extent, 1), BIAS_GRANULE))
            yield Violation("config.rel_extent", f"rel_extent={extent} is not a multiple of {BIAS_GRANULE}", fixes)
        elif mask.pattern == "sliding_window" and mask.window != extent:
            message = f"a relative bias of {extent} needs a window of that length, not {mask.window}"
            yield Violation("mask.window", message, (Fix("mask.window", extent),))
        for name in ("tile_m", "tile_n"):
            if config.get(name) != BIAS_GRANULE:
                message = f"a relative bias needs {name}={BIAS_GRANULE}, not {config.get(name)}"
                yield Violation(f"config.{name}", message, (Fix(f"config.{name}", BIAS_GRANULE),))
    if config.get("block_scaled") and config.get("q_stage") != 1:
        message = f"block-scaled Q and K need q_stage=1, not {config.get('q_stage')}"
        yield Violation("config.q_stage", message, (Fix("config.q_stage", 1),))


def _ragged_query_block(case: Case, rows: int, what: str) -> Iterator[Violation]:
    if case.sparse_block is None or rows <= 0 or case.sparse_block[0] % rows == 0:
        return
    block_q, block_kv = case.sparse_block
    fixes = [Fix("sparse_block", (each, block_kv), "rebuild the mask") for each in nearest_multiples(block_q, rows)]
    if case.arch == "sm_90":
        smaller = next((each for each in SM90_TILES_M if each < rows and block_q % each == 0), None)
        fixes += [Fix("config.tile_m", smaller)] if smaller else []
    yield Violation("sparse_block", f"query blocks of {block_q} are not a multiple of {what}", tuple(fixes))


@rule(
    "SGL-005",
    why="rows are loaded 16 bytes at a time, into tiles of at most 256 columns",
    upstream=("head_dim must be less than or equal to 256", "head_dim must be divisible by {}"),
)
def head_dim_unsupported(case: Case) -> Iterator[Violation]:
    """A head dimension that the fork does not take.

    What: `head_dim` and `head_dim_v` are multiples of 8, up to 256.

    Why: The fork asserts it before anything else. 1024 is usually a length in the place of a head dimension: shapes are
    (batch_size, seqlen, num_heads, head_dim).

    Fix: 100 -> 96 or 104 (pad with zeros, and keep the scale of the true head dimension); 1024 -> 256 at most.
    """
    problem = case.problem
    for name in ("head_dim", "head_dim_v"):
        dim = getattr(problem, name)
        if (dim > MAX_HEAD_DIM or dim % HEAD_DIM_GRANULE) and (name == "head_dim" or dim != problem.head_dim):
            near = nearest_multiples(dim, HEAD_DIM_GRANULE) if dim < MAX_HEAD_DIM else (MAX_HEAD_DIM,)
            fixes = tuple(Fix(f"problem.{name}", each) for each in near)
            yield Violation(f"problem.{name}", f"{name}={dim} is not a multiple of 8 up to 256", fixes)


@rule(
    "SGL-006",
    why="the kernels multiply 16-bit numbers only",
    upstream=("inputs must be float16 or bfloat16",),
)
def dtype_unsupported(case: Case) -> Iterator[Violation]:
    """The inputs are of a type that the fork does not take.

    What: `dtype` is `bfloat16` or `float16`.

    Why: float32 has no matrix instruction of this shape; sums are kept in float32 all the same.

    Fix: `dtype: bfloat16` instead of float32.
    """
    if case.problem.dtype not in DTYPES:
        fixes = tuple(Fix("problem.dtype", each) for each in DTYPES)
        yield Violation("problem.dtype", f"dtype {case.problem.dtype} is not bfloat16 or float16", fixes)


@rule("SGL-007", why="16 is the depth of one matrix instruction, and it has at most 256 columns")
def tile_is_not_a_multiple_of_16(case: Case) -> Iterator[Violation]:
    """A side of the forward tile is not a positive multiple of 16, or `tile_n` is above 256.

    What: `tile_m` and `tile_n` are positive multiples of 16, and `tile_n` is at most 256.

    Why: Tiles are made of matrix instructions. What is no whole number of them fails while the kernel is traced, with a
    message about layouts.

    Fix: 120 -> 112 or 128; 272 -> 256.
    """
    for name in ("tile_m", "tile_n"):
        value = case.config.get(name)
        if not isinstance(value, int) or (value > 0 and value % 16 == 0 and (name == "tile_m" or value <= MAX_TILE_N)):
            continue
        near = (128,) if value <= 0 else nearest_multiples(value, 16)
        if name == "tile_n" and value > MAX_TILE_N:
            near = (MAX_TILE_N,)
        fixes = tuple(Fix(f"config.{name}", each) for each in near)
        yield Violation(
            f"config.{name}", f"{name}={value} is not a positive multiple of 16 that a tile can have", fixes
        )
