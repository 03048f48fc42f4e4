"""Facts about prebuilt block arrays against the problem that they are used for."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation, rule


@rule(
    "G201",
    why="the kernel would skip the rest, or read beyond the arrays",
    upstream=("m-block dimension {} does not match sparse_block_size_q={}.",),  # flash-attn-4
    aliases=("FA4-S005",),
)
def layout_of_other_length(case: Case) -> Iterator[Violation]:
    """Prebuilt block arrays do not have the blocks of this problem.

    What: `layout.num_blocks` is seqlen_q / sparse block, rounded up; without a sparse block, `layout.seq_len` is
    seqlen_q.

    Why: Block arrays are built once and used for many calls. Arrays built for 2048 tokens in blocks of 128 have 16
    rows; at 1000 tokens the kernel walks 8 of them. Arrays built in blocks of 256 for 65536 tokens have 256 rows; a
    kernel that walks blocks of 64 reads 1024.

    Fix: Build the arrays for the true length (1000 tokens in blocks of 128: 8) and state them: `layout: {num_blocks:
    8, seq_len: 1000}`. Rounding a length up to whole blocks is done inside the arrays; the mask keeps the true
    length.
    """
    layout, seqlen_q = case.layout, case.problem.seqlen_q
    if layout is None:
        return
    if layout.num_blocks is not None and case.sparse_block is not None:
        rows = case.sparse_block[0]
        needed = -(-seqlen_q // rows)
        if layout.num_blocks != needed:
            built = f", built for seq_len {layout.seq_len}" if layout.seq_len else ""
            message = (
                f"the layout has {layout.num_blocks} blocks{built}; "
                f"the kernel walks {needed} (seqlen_q {seqlen_q} in blocks of {rows})"
            )
            yield Violation("layout.num_blocks", message, (Fix("layout.num_blocks", needed, "rebuild the arrays"),))
    elif layout.seq_len is not None and layout.seq_len != seqlen_q:
        message = f"the layout is built for seq_len {layout.seq_len}, the problem has seqlen_q {seqlen_q}"
        yield Violation("layout.seq_len", message, (Fix("layout.seq_len", seqlen_q, "rebuild the arrays"),))


@rule("G202", why="rounding up to whole blocks is done inside the block arrays, not in the lengths that they state")
def layout_built_for_other_lengths(case: Case) -> Iterator[Violation]:
    """Prebuilt block arrays state other lengths than the problem has.

    What: `layout.seqlen_q` and `layout.seqlen_k` equal the problem's.

    Why: A mask for 20096 x 40192 (20000 rounded up to 128, and twice that) against 20000 queries and 40000 keys is
    refused in the middle of a run, or masks the wrong keys. The grid has 157 x 313 blocks either way.

    Fix: Build the mask at the true lengths: 20000 x 40000.
    """
    layout, problem = case.layout, case.problem
    if layout is None:
        return
    built = {"seqlen_q": layout.seqlen_q or problem.seqlen_q, "seqlen_k": layout.seqlen_k or problem.seqlen_k}
    lengths = f"{built['seqlen_q']} x {built['seqlen_k']}, the problem has {problem.seqlen_q} x {problem.seqlen_k}"
    for name, length in built.items():
        true = getattr(problem, name)
        if length != true:
            fix = Fix(f"layout.{name}", true, "rebuild the arrays")
            yield Violation(f"layout.{name}", f"the layout is built for {lengths}", (fix,))
