"""FA4-B005 to B008, B019, B022 to B024: what the backward pass is given beside its tiles."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.fa4.rules.values import block, number
from attnctl_kernels.rule import Fix, Severity, Violation, rule

SPARSE = ("sm_90", *tiles.BLACKWELL)
REBUILD = "rebuild the mask"


@rule(
    "FA4-B005",
    passes=("backward",),
    arches=SPARSE,
    severity=Severity.WARNING,
    why="the kernel then takes a size of its own, and arrays of another size have another shape or another meaning",
    upstream=("Backward expects Q-direction block-sparse tensors",),
)
def backward_block_size_assumed(case: Case) -> Iterator[Violation]:
    """Prebuilt backward arrays come without the block size that they were built for.

    What: Where `layout` describes backward arrays, `sparse_block` is given.

    Why: Without it sm_90 assumes query blocks of 128, and sm_100, sm_103 and sm_110 of 256; key blocks are one tile.

    Fix: State `sparse_block`, and pass `block_size` with the arrays.
    """
    layout, derived = case.layout, block(case)
    described = layout and (layout.num_n_blocks or layout.backward_index_width or layout.backward_arrays)
    if described and derived and "sparse_block" not in case.given:
        message = f"backward arrays without a block size are taken for blocks of {derived[0]} x {derived[1]}"
        yield Violation("layout", message, (Fix("sparse_block", derived),), "state the size that they were built for")


def _key_tiles(case: Case) -> int:
    """Backward key tiles per sparse key block, or 0."""
    tile_n, sparse_block = number(case, "tile_n"), block(case)
    whole = tile_n and sparse_block and sparse_block[1] % tile_n == 0
    return sparse_block[1] // tile_n if whole and sparse_block else 0


@rule(
    "FA4-B006",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    why="at head_dim 192 the backward pass exists for pairs of CTAs only, and a pair owns two neighbouring key tiles",
    upstream=(
        "SM100 block-sparse backward with head_dim=192 requires 2CTA; {}.",
        "sparse_block_size[1] must cover an even number of tile_n={} tiles; got factor {}",
    ),
)
def key_block_of_odd_tiles(case: Case) -> Iterator[Violation]:
    """Key blocks of an odd number of tiles at head_dim 192 (sm_100 to sm_110).

    What: At head_dim 192 the second value of `sparse_block` is a multiple of 256, and FA_DISABLE_2CTA is not 1.

    Why: Both CTAs of a pair walk one list of query blocks.

    Fix: 128 -> 256.
    """
    call, factor, sparse_block = Call(case), _key_tiles(case), block(case)
    if not call.sparse or case.problem.head_dim != 192 or not factor or sparse_block is None:
        return
    if call.disables_pairs:
        fix = Fix("config.FA_DISABLE_2CTA", 0)
        yield Violation("config.FA_DISABLE_2CTA", "FA_DISABLE_2CTA turns off what head_dim 192 needs", (fix,))
    if factor % 2:
        tile_n = number(case, "tile_n")
        near = [each * tile_n for each in (factor - 1, factor + 1) if each]
        message = f"key blocks of {sparse_block[1]} are {factor} tiles of {tile_n}, head_dim 192 needs an even number"
        fixes = tuple(Fix("sparse_block", (sparse_block[0], each), REBUILD) for each in near)
        yield Violation("sparse_block", message, fixes)


@rule(
    "FA4-B024",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    severity=Severity.WARNING,
    why="without pairs each CTA loads all of Q and dO itself",
)
def pairs_dropped(case: Case) -> Iterator[Violation]:
    """Key blocks of an odd number of tiles turn off pairs of CTAs at head_dim 128 (sm_100 to sm_110).

    What: At head_dim 128 the second value of `sparse_block` is a multiple of 256.

    Why: From head_dim 128 on the kernel runs in pairs that share their loads, unless a key block has an odd number of
    tiles. At head_dim 192 that is an error (FA4-B006).

    Fix: 128 -> 256.
    """
    call, factor, sparse_block = Call(case), _key_tiles(case), block(case)
    if call.sparse and case.problem.head_dim == 128 and factor % 2 and sparse_block and not call.disables_pairs:
        wider = (sparse_block[0], (factor + 1) * number(case, "tile_n"))
        message = f"key blocks of {sparse_block[1]} are {factor} tile{'s' * (factor > 1)}: no pairs of CTAs"
        yield Violation("sparse_block", message, (Fix("sparse_block", wider, REBUILD),))


@rule(
    "FA4-B007",
    passes=("backward",),
    arches=SPARSE,
    why="the backward pass walks query blocks per key block; on square masks the forward lists have the same shape",
    upstream=("Regenerate the backward BlockMask with BLOCK_SIZE=({}, {}).",),
)
def backward_arrays_not_transposed(case: Case) -> Iterator[Violation]:
    """The backward arrays do not have one list of query blocks per key block.

    What: `layout.num_n_blocks` is seqlen_k / key block, and `layout.backward_index_width` at most seqlen_q / query
    block, both rounded up.

    Why: FlexAttention keeps both: `kv_indices` for the forward pass, `q_indices` for the backward pass. With as many
    query blocks as key blocks a mix-up has the right shape and the wrong gradient.

    Fix: 1024 queries, 4096 keys, blocks of 128: 32 rows of at most 8. Pass q_num_blocks and q_indices.
    """
    layout, sparse_block, problem = case.layout, block(case), case.problem
    if layout is None or not sparse_block or not Call(case).sparse:
        return
    rows, width = ceil_div(problem.seqlen_k, sparse_block[1]), ceil_div(problem.seqlen_q, sparse_block[0])
    if layout.num_n_blocks not in (None, rows):
        message = f"the backward arrays have {layout.num_n_blocks} rows, the kernel walks {rows} key blocks"
        yield Violation("layout.num_n_blocks", message, (Fix("layout.num_n_blocks", rows, "pass q_indices"),))
    if layout.backward_index_width is not None and layout.backward_index_width > width:
        message = f"the backward indices are {layout.backward_index_width} wide, there are {width} query blocks"
        yield Violation("layout.backward_index_width", message, (Fix("layout.backward_index_width", width),))


@rule("FA4-B008", passes=("backward",), arches=SPARSE, why="the gradient is then silently that of a full mask")
def backward_arrays_missing(case: Case) -> Iterator[Violation]:
    """Training with block lists for the forward pass alone.

    What: Where block lists come from a program, `layout.backward_arrays` is not false.

    Why: `flash_attn_func` takes `block_sparse_tensors` and `block_sparse_tensors_bwd`. Without the second the backward
    pass runs dense: every masked pair gets a gradient as if it had been seen.

    Fix: Pass both.
    """
    if case.layout and case.layout.backward_arrays is False and Call(case).sparse:
        message = "there are no block lists for the backward pass"
        yield Violation("layout.backward_arrays", message, (Fix("layout.backward_arrays", True),))


@rule(
    "FA4-B019",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    why="parts of dQ are added in an order that somebody has to write down",
    upstream=(
        "deterministic block-sparse backward requires dq_write_order in block_sparse_tensors",
        "deterministic block-sparse backward requires dq_write_order_full when full blocks are present",
        "deterministic block-sparse backward requires block_sparse_tensors.spt",
        "spt must be a bool when provided",
        "spt requires dq_write_order to be provided",
    ),
)
def write_order_missing(case: Case) -> Iterator[Violation]:
    """A deterministic backward pass along block lists lacks the order of its writes (sm_100 to sm_110).

    What: With `deterministic` and block lists, `layout.dq_write_order` is true, `layout.spt` is given, and
    `layout.dq_write_order_full` is true unless `layout.has_full_blocks` is false. `spt` is given with an order only.

    Why: Each program waits for its turn at a query block. The turn is the rank of its key block among those that list
    it, ascending, or descending with `spt`; the kernel cannot count that from one list.

    Fix: `compute_dq_write_order(..., spt=False)` beside the mask, and `spt: false`.
    """
    layout = case.layout
    if layout and layout.spt is not None and not layout.dq_write_order:
        fixes = (Fix("layout.dq_write_order", True), Fix("layout.spt", None))
        yield Violation("layout.spt", "spt is given without dq_write_order", fixes)
    if not case.config.get("deterministic") or not Call(case).sparse:
        return
    if layout is None or not layout.dq_write_order:
        message = "deterministic along block lists needs dq_write_order"
        fixes = (Fix("layout.dq_write_order", True), Fix("config.deterministic", False))
        yield Violation("layout.dq_write_order", message, fixes)
    elif layout.spt is None:
        message = "deterministic along block lists needs spt, the direction of dq_write_order"
        yield Violation("layout.spt", message, (Fix("layout.spt", False), Fix("config.deterministic", False)))
    if layout is None or (layout.has_full_blocks is not False and not layout.dq_write_order_full):
        message = "deterministic along lists of full blocks needs dq_write_order_full"
        fixes = (Fix("layout.dq_write_order_full", True), Fix("config.deterministic", False))
        yield Violation("layout.dq_write_order_full", message, fixes)


@rule("FA4-B022", why="with a mask_mod the forward pass drops them, and the backward pass applies them")
def causal_beside_a_mask_function(case: Case) -> Iterator[Violation]:
    """A causal flag or a window beside a mask function.

    What: With `mask_mod`, and with any mask pattern but dense, which attnctl runs as a mask_mod, `causal`,
    `window_left` and `window_right` are left out.

    Why: The forward pass resolves the mask with the mask_mod at hand and forgets the flags; the backward pass resolves
    it without. The gradients then belong to another mask than the output.

    Fix: Put causality into the mask_mod: `pattern: causal`, or document with `causal: true` under `mask`.
    """
    if not Call(case).masked:
        return
    for name in ("causal", "window_left", "window_right"):
        value = case.config.get(name)
        if value is not None and value is not False:
            message = f"{name} {str(value).lower()} beside a mask_mod, which replaces it in the forward pass only"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", None),), "put it into the mask")


@rule("FA4-B023", passes=("backward",), severity=Severity.WARNING, why="the backward pass never packs heads")
def packing_ignored(case: Case) -> Iterator[Violation]:
    """`pack_gqa` is set for the backward pass.

    What: `pack_gqa` is not true for the backward pass.

    Why: The interface sets it to false there, so it changes nothing.

    Fix: Leave it out.
    """
    if case.config.get("pack_gqa"):
        yield Violation("config.pack_gqa", "pack_gqa has no effect here", (Fix("config.pack_gqa", None),))
