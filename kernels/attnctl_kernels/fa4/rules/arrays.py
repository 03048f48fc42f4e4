"""FA4-S002 to S004, S006, S014, S019, S020, S022: facts about prebuilt block arrays of the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, Layout
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.fa4.rules.values import block
from attnctl_kernels.rule import Fix, Severity, Violation, rule

SPARSE = ("sm_90", *tiles.BLACKWELL)


def _arrays(case: Case) -> Layout | None:
    return case.layout if Call(case).sparse else None


def _key_blocks(case: Case) -> int:
    """Blocks of keys, or 0 where their size makes no sense."""
    sparse_block = block(case)
    return ceil_div(case.problem.seqlen_k, sparse_block[1]) if sparse_block else 0


@rule(
    "FA4-S002",
    passes=("forward",),
    arches=SPARSE,
    why="the forward kernel reads the lists of full blocks whether there are any or not",
    upstream=("get_curr_blocksparse_tensors … 'NoneType' object is not subscriptable",),
)
def full_blocks_missing(case: Case) -> Iterator[Violation]:
    """Block arrays without lists of full blocks.

    What: `layout.has_full_blocks` is not false.

    Why: Partial blocks go through the mask function, full blocks past it. The kernel fetches both lists for every tile;
    tracing fails where one is None. The backward kernel can do without.

    Fix: Build the mask with `separate_full_blocks=True`, or pass counts of 0 of the same shape.
    """
    layout = _arrays(case)
    if layout and layout.has_full_blocks is False:
        message = "there are no lists of full blocks"
        yield Violation("layout.has_full_blocks", message, (Fix("layout.has_full_blocks", True, "with counts of 0"),))


@rule(
    "FA4-S003",
    arches=SPARSE,
    why="the kernel reads 32-bit numbers, whatever is there",
    upstream=(
        "{}_block tensors must have dtype torch.int32",
        "{}_block tensors must live on CUDA",
        "{}_block_idx must be on the same device",
        "All block sparse tensors must be on the same device",
    ),
)
def block_arrays_of_other_type(case: Case) -> Iterator[Violation]:
    """The block arrays are not int32.

    What: `layout.index_dtype` is int32, and all arrays are on the device of Q.

    Why: torch.argsort and torch.nonzero give int64.

    Fix: `.to(torch.int32)`.
    """
    layout = _arrays(case)
    if layout and layout.index_dtype not in (None, "int32"):
        message = f"block arrays are {layout.index_dtype}, not int32"
        yield Violation("layout.index_dtype", message, (Fix("layout.index_dtype", "int32", "cast them"),))


@rule(
    "FA4-S004",
    arches=SPARSE,
    why="only a dimension of 1 is shared, and heads are those of the queries",
    upstream=(
        "must have shapes (B, H, M) and (B, H, M, N).",
        "Block sparse tensors{} batch dim must be {} or 1.",
        "Block sparse tensors{} head dim must be {} or 1.",
        "must share the same m-block dimension.",
        "with shape {} cannot be expanded to expected shape {}.",
    ),
)
def block_arrays_do_not_broadcast(case: Case) -> Iterator[Violation]:
    """The leading dimensions of the block arrays are neither 1 nor those of the queries.

    What: `layout.batch_size` is 1 or batch_size, `layout.num_heads` is 1 or num_heads_q.

    Why: An array for all heads is read with a stride of 0. A mask per key/value head, 8 for 32 query heads, has no such
    stride.

    Fix: `repeat_interleave(4, dim=1)` for 8 of 32 heads, or one mask for all.
    """
    layout = _arrays(case)
    if layout is None:
        return
    for name, wanted in (("batch_size", case.problem.batch_size), ("num_heads", case.problem.num_heads_q)):
        size = getattr(layout, name)
        if size not in (None, 1, wanted):
            message = f"the arrays have {name} {size}, neither 1 nor the {wanted} of the queries"
            yield Violation(f"layout.{name}", message, (Fix(f"layout.{name}", wanted), Fix(f"layout.{name}", 1)))


@rule(
    "FA4-S006",
    passes=("forward",),
    arches=SPARSE,
    why="a list has at most one entry per key block, and room for its own entries",
    upstream=("n-block dimension must be <= {}.",),
)
def index_width_does_not_fit(case: Case) -> Iterator[Violation]:
    """The indices are wider than there are key blocks, or narrower than the longest list.

    What: `layout.index_width` is at least `layout.max_count` and at most seqlen_k / key block, rounded up.

    Why: A width above that was built for other keys or smaller blocks, and is refused. A width below the counts is
    accepted: the kernel reads on into the next row.

    Fix: 4096 keys in blocks of 128: up to 32. The longest count is enough.
    """
    layout, blocks = _arrays(case), _key_blocks(case)
    if layout is None or layout.index_width is None or not blocks:
        return
    if layout.index_width > blocks:
        message = f"indices are {layout.index_width} wide, there are {blocks} key blocks"
        yield Violation("layout.index_width", message, (Fix("layout.index_width", blocks, "rebuild the arrays"),))
    elif layout.max_count is not None and layout.max_count > layout.index_width:
        message = f"a list of {layout.max_count} blocks does not fit into indices {layout.index_width} wide"
        fits = min(layout.max_count, blocks)
        fixes = (Fix("layout.index_width", fits),) if fits >= layout.max_count else ()
        yield Violation("layout.index_width", message, fixes, "" if fixes else "rebuild the arrays")


@rule(
    "FA4-S014",
    passes=("forward",),
    arches=SPARSE,
    severity=Severity.WARNING,
    why="heads that share the rows of a tile share its list, so the kernel stops packing them",
)
def mask_per_head_stops_packing(case: Case) -> Iterator[Violation]:
    """Block lists per head where the heads of a group would be packed.

    What: With grouped heads, `layout.num_heads` is 1, or `pack_gqa` is false.

    Why: Unpacked, each query head loads the keys of its group again. On sm_100 the number of query stages was chosen
    with packing on: 128 queries of 8 heads on 2 then need query blocks of 256, which FA4-S012 says.

    Fix: One mask for all heads; or `pack_gqa: false`, which says what runs.
    """
    layout, call = _arrays(case), Call(case)
    if layout and layout.num_heads not in (None, 1) and call.pack_gqa and call.group > 1:
        message = f"block lists for {layout.num_heads} heads stop {call.group} heads of a group from sharing tiles"
        fixes = (Fix("layout.num_heads", 1), Fix("config.pack_gqa", False))
        yield Violation("layout.num_heads", message, fixes)


@rule("FA4-S019", passes=("forward",), arches=SPARSE, why="entries are coordinates that nobody checks")
def listed_blocks_impossible(case: Case) -> Iterator[Violation]:
    """A list names a block of keys that does not exist, or one block twice.

    What: `layout.max_index` is below seqlen_k / key block, rounded up; `layout.max_count` is at most that;
    `layout.has_duplicates` is not true, also between partial and full blocks.

    Why: Nothing checks the entries. Block 32 of 32 reads keys as zeros, which the softmax counts with a score of 0; a
    block that is listed twice counts twice.

    Fix: Blocks count from 0: 4096 keys in blocks of 128 are blocks 0 to 31.
    """
    layout, blocks = _arrays(case), _key_blocks(case)
    if layout is None or not blocks:
        return
    if layout.max_index is not None and layout.max_index >= blocks:
        message = f"block {layout.max_index} is listed, there are blocks 0 to {blocks - 1}"
        yield Violation("layout.max_index", message, (Fix("layout.max_index", blocks - 1, "rebuild the arrays"),))
    if layout.max_count is not None and layout.max_count > blocks:
        message = f"a list has {layout.max_count} blocks, there are {blocks}"
        yield Violation("layout.max_count", message, (Fix("layout.max_count", blocks, "rebuild the arrays"),))
    if layout.has_duplicates:
        message = "a block is listed twice"
        yield Violation("layout.has_duplicates", message, (Fix("layout.has_duplicates", False, "rebuild the arrays"),))


@rule("FA4-S020", passes=("forward",), arches=SPARSE, why="only the tile that is visited first is cut at the end")
def ragged_block_not_last(case: Case) -> Iterator[Violation]:
    """Lists that are not in order, where the last block of keys is not full.

    What: Where the key block does not divide seqlen_k, `layout.ascending` is not false.

    Why: A list is walked from its end, and the kernel hides the keys behind the end of the sequence in the first tile
    that it visits. With the ragged block elsewhere in the list it attends to zeros: 1000 keys in blocks of 128 have 24
    of them.

    Fix: Sort each list, which torch's BlockMask does; or 1024 keys.
    """
    layout, sparse_block = _arrays(case), block(case)
    keys = case.problem.seqlen_k
    if layout and layout.ascending is False and sparse_block and keys % sparse_block[1]:
        message = f"lists are not in order, and the last block has {keys % sparse_block[1]} of {sparse_block[1]} keys"
        yield Violation("layout.ascending", message, (Fix("layout.ascending", True, "sort each list"),))


@rule("FA4-S022", passes=("forward",), arches=SPARSE, why="a narrow index array fits every coarser block size")
def lists_end_too_early(case: Case) -> Iterator[Violation]:
    """The largest listed block is not the last one, though the mask shows the last key to some query.

    What: `layout.max_index` is seqlen_k / key block, rounded up, less 1. (Masks of pattern `blocks` may well leave the
    last keys out.)

    Why: Only the width is checked, and narrower is allowed. Lists that were built in blocks of 256 for 4096 keys end at
    15; read as blocks of 128 they cover 2048 keys, without a message.

    Fix: Pass `block_size` with the arrays, and state the same `sparse_block`.
    """
    layout, blocks, sparse_block = _arrays(case), _key_blocks(case), block(case)
    problem = case.problem
    if layout is None or layout.max_index is None or not sparse_block or problem.mask.pattern == "blocks":
        return
    if layout.max_index < blocks - 1 and problem.seqlen_q >= problem.seqlen_k:
        covered = (layout.max_index + 1) * sparse_block[1]
        message = f"lists end at block {layout.max_index}, which covers {covered} of {problem.seqlen_k} keys"
        size = ceil_div(problem.seqlen_k, layout.max_index + 1)
        advice = f"build them in blocks of {sparse_block[1]}, or state the key block that they have, perhaps {size}"
        fix = Fix("layout.max_index", blocks - 1, "rebuild the arrays")
        yield Violation("layout.max_index", message, (fix,), advice)
