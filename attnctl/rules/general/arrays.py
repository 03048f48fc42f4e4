"""LAYOUT: prebuilt block arrays, looked through entry by entry."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.block_arrays import faults
from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Severity, Violation, rule


@rule("LAYOUT-001", why="what cannot be read cannot be checked")
def layout_file_unreadable(case: Case) -> Iterator[Violation]:
    """The file of block arrays cannot be read.

    What: `layout.path` names a `.npz`, `.safetensors`, `.pt` or `.json` file, from where the profile is. `.pt` files
    hold a dict of tensors and nothing else: attnctl never runs what a pickle asks for. All arrays together have at most
    268,435,456 values.

    Why: A file that was cut short or is of another kind would fail in the job that loads it.

    Fix: Save the arrays by their names: `np.savez("layout.npz", mask_block_cnt=cnt, mask_block_idx=idx)`, or
    `torch.save({"kv_num_blocks": mask.kv_num_blocks, "kv_indices": mask.kv_indices}, "layout.pt")`.
    """
    arrays = case.layout.arrays if case.layout else None
    if arrays and arrays.fault:
        yield Violation(faults.FILE, f"{arrays.name}: {arrays.fault}", advice="save the arrays again, by their names")


@rule(
    "LAYOUT-002",
    why="indices mean nothing without their counts",
    upstream=(  # flash-attn-4
        "mask_block_cnt and mask_block_idx must be provided for block sparsity.",
        "{}_block_cnt and {}_block_idx must both be provided or both be None",
    ),
    aliases=("FA4-S001",),
)
def array_missing(case: Case) -> Iterator[Violation]:
    """Counts without indices, indices without counts, or no block arrays at all.

    What: `mask_block_cnt` comes with `mask_block_idx`, `full_block_cnt` with `full_block_idx`, likewise `diag_` and
    those of the backward pass, `bwd_`. The names of torch's BlockMask are known: `kv_num_blocks` and `kv_indices`,
    `q_num_blocks` and `q_indices`, and the same with `full_`.

    Why: A row of indices is as wide as the longest list; its count says where the list ends. Kernels refuse half a
    pair (FA4-S001).

    Fix: Save both: `np.savez(path, mask_block_cnt=cnt, mask_block_idx=idx)` with shapes [2, 8, 16] and [2, 8, 16, 16].
    """
    return faults.incomplete(case)


@rule("LAYOUT-003", why="kernels read the bytes as 32-bit numbers")
def array_of_wrong_dtype(case: Case) -> Iterator[Violation]:
    """A block array is not int32.

    What: All counts and indices are int32.

    Why: Read as int32, an int64 array of 3, 5 is 3, 0, 5, 0: block 0 is visited instead of block 5. `argsort`, `sum`
    and `nonzero` give int64 (FA4-S003).

    Fix: `idx.to(torch.int32)`, or `idx.astype(np.int32)`.
    """
    return faults.wrong_dtype(case)


@rule("LAYOUT-004", why="rows would be read at the wrong place")
def array_of_wrong_shape(case: Case) -> Iterator[Violation]:
    """The shapes of block arrays do not fit each other or the problem.

    What: Counts are (batch, heads, rows), indices (batch, heads, rows, width); all arrays of a pass agree in the first
    three. batch is 1 or `batch_size`, heads 1 or `num_heads_q`.

    Why: A dimension of 1 is shared by all; any other is indexed. A mask per key head, 2 for 8 query heads, is refused
    or wraps around (FA4-S004).

    Fix: Repeat it: `idx.repeat_interleave(4, dim=1)` makes 8 heads of 2.
    """
    return faults.wrong_shape(case)


@rule("LAYOUT-005", passes=("backward",), why="the backward pass walks query blocks per key block")
def backward_rows_are_not_key_blocks(case: Case) -> Iterator[Violation]:
    """The arrays of the backward pass do not have one row per key block.

    What: `bwd_` arrays have seqlen_k / sparse block rows, rounded up.

    Why: Gradients of keys are summed over the queries that see them, so the lists are those of the forward pass
    transposed (FA4-B007). Where both grids have the same size nothing refuses the wrong ones.

    Fix: torch's `q_num_blocks` and `q_indices`, not the `kv_` ones: 1024 queries and 2048 keys in blocks of 128 have 16
    rows with up to 8 entries.
    """
    return faults.wrong_rows_of_keys(case)


@rule("LAYOUT-006", why="entries behind the last block are never right")
def array_of_wrong_width(case: Case) -> Iterator[Violation]:
    """More entries per row than there are blocks, or a count beyond the entries.

    What: The last dimension of an index array is at most the number of blocks that a row can list, and every count is
    between 0 and that dimension.

    Why: A count of 9 over 8 entries reads the next row's first entry (FA4-S006, FA4-S019).

    Fix: Build the arrays for this length: 1000 keys in blocks of 128 need at most 8 entries.
    """
    return faults.wrong_width(case)


@rule("LAYOUT-007", why="an index becomes the coordinate of a load")
def listed_block_does_not_exist(case: Case) -> Iterator[Violation]:
    """A list names a block that does not exist.

    What: Listed indices are at least 0 and below length / sparse block, rounded up.

    Why: The kernel loads what the index says: zeros, another sequence, or an illegal address (FA4-S019).

    Fix: 1000 keys in blocks of 128 are blocks 0 to 7. Entries behind a row's count may hold anything.
    """
    return faults.out_of_range(case)


@rule("LAYOUT-008", why="its keys count twice in the softmax")
def block_listed_twice(case: Case) -> Iterator[Violation]:
    """A row lists a block twice.

    What: A block is at most once in a row, whether as partial, full or diagonal.

    Why: Kernels add what they visit. Nothing upstream looks for this (FA4-S019).

    Fix: [0, 3, 3] -> [0, 3]; a block that is full belongs in the full list alone.
    """
    return faults.listed_twice(case)


@rule("LAYOUT-009", passes=("forward",), why="kernels mask the end of the sequence in the last listed block only")
def list_out_of_order(case: Case) -> Iterator[Violation]:
    """A list does not ascend, and the last key block is ragged.

    What: Where seqlen_k is not a multiple of the key block, every list of key blocks ascends.

    Why: Lists are walked from their end, and the first tile visited gets the mask of the sequence's length. The ragged
    block anywhere else attends to keys that do not exist, as zeros (FA4-S020).

    Fix: Sort each row: [7, 0, 3] -> [0, 3, 7]. torch's BlockMask is sorted.
    """
    return faults.disordered(case)


@rule("LAYOUT-010", severity=Severity.WARNING, why="a list of larger blocks is read as one of smaller blocks")
def lists_end_in_the_first_half(case: Case) -> Iterator[Violation]:
    """No list reaches the second half of the blocks.

    What: The largest index is near the number of blocks.

    Why: Lists built with blocks of 256 for 65536 tokens end at 255; read with blocks of 64 they cover the first quarter
    of the sequence, and nothing refuses them (FA4-S022).

    Fix: State the `sparse_block` that the arrays were built for, [256, 256], or rebuild them.
    """
    return faults.coarser_than_stated(case)


@rule("LAYOUT-011", why="gradients would be those of another mask")
def passes_list_different_blocks(case: Case) -> Iterator[Violation]:
    """The lists of the backward pass are not those of the forward pass, transposed.

    What: Query block q is in the backward list of key block k where, and only where, k is in the forward list of q.

    Why: A block that only the forward pass visits gets no gradient; one that only the backward pass visits gets one
    that does not belong to it. Neither is noticed.

    Fix: Build both from one mask: torch's BlockMask transposes its own lists.
    """
    return faults.not_transposed(case)


@rule("LAYOUT-012", why="the kernel computes what the lists say, not what the mask says")
def lists_are_not_the_mask(case: Case) -> Iterator[Violation]:
    """The block arrays are those of another mask.

    What: Each block that the profile's mask sees is listed, no block is that it does not see, and blocks in the full
    list are seen in full. `pattern: dense`, the default, is compared with nothing.

    Why: A missing block is attention that is lost. An extra one costs time, or leaks keys where it is listed as full:
    full blocks are not masked element by element.

    Fix: Rebuild the arrays from the mask, or correct `mask`: `{pattern: causal}` at 1024 tokens in blocks of 128 has 28
    full blocks, and 8 partial ones on the diagonal.
    """
    return faults.not_the_mask(case)


@rule("LAYOUT-013", why="one of the two is out of date")
def layout_fact_contradicts_the_file(case: Case) -> Iterator[Violation]:
    """A fact below `layout` is not what the file of arrays says.

    What: `num_blocks`, `batch_size`, `num_heads` and the other facts that can be seen in the arrays may be left out
    beside `path`; where they are given, they agree.

    Why: Rules go by the stated fact.

    Fix: Remove it: `layout: {path: layout.npz}` with 16 rows says `num_blocks: 16` by itself.
    """
    return faults.stated_otherwise(case)
