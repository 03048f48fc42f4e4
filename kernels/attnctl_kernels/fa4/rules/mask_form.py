"""FA4-S023 to S025: block lists or the kernel's own form of the mask, and how many query tiles a block has."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.fa4 import mask_form
from attnctl_kernels.fa4.rules.values import block, number
from attnctl_kernels.rule import Fix, Violation, rule

AS_BLOCKS = Fix("config.mask_form", mask_form.BLOCKS)


@rule("FA4-S023", passes=("forward",), why="the kernel itself knows causality and one window, and nothing else")
def mask_has_no_native_form(case: Case) -> Iterator[Violation]:
    """The kernel has no form of its own for this mask.

    What: `mask_form: native` goes with the patterns `causal` and `sliding_window`.

    Why: Natively flash-attn-4 takes a flag for causality and two bounds of a window. Everything else is an element
    predicate with block lists, which is `mask_form: blocks`.

    Fix: `mask_form: blocks`, or leave it out.
    """
    pattern = case.problem.mask.pattern
    if mask_form.is_native(case.config) and pattern not in (*mask_form.FORMS_OF_ITS_OWN, "dense"):
        known = join_words(mask_form.FORMS_OF_ITS_OWN, "and")
        message = f"mask_form native is for {known}, and the pattern is {pattern}"
        yield Violation("config.mask_form", message, (AS_BLOCKS,))


@rule("FA4-S024", passes=("forward",), why="the kernel finds its key tiles by itself, and reads no lists")
def native_form_with_blocks(case: Case) -> Iterator[Violation]:
    """Sparse blocks are given for a mask that runs without block lists.

    What: With `mask_form: native` there is no `sparse_block`, and no `subtile_factor` above 1.

    Why: Lists beside a native causal mask or window would be a second mask. attnctl builds none, so that the blocks
    would mean nothing.

    Fix: leave `sparse_block` and `subtile_factor` out, or `mask_form: blocks`.
    """
    if not mask_form.is_native(case.config):
        return
    if sparse_block := block(case):
        message = f"sparse blocks of {sparse_block[0]} x {sparse_block[1]} mean nothing to mask_form native"
        yield Violation("sparse_block", message, (AS_BLOCKS,), "leave sparse_block out")
    if number(case, "subtile_factor") > 1:
        message = f"subtile_factor {case.config['subtile_factor']} means nothing to mask_form native"
        yield Violation("config.subtile_factor", message, (Fix("config.subtile_factor", None), AS_BLOCKS))


@rule("FA4-S025", passes=("forward",), why="the kernel finds a tile's row by dividing by it")
def query_block_is_not_subtile_factor_tiles(case: Case) -> Iterator[Violation]:
    """The sparse query block is not `subtile_factor` tiles, or the factor makes no sense.

    What: Where `subtile_factor` is given, it is at least 1, and the first value of `sparse_block` is
    `subtile_factor * tile_m`. Left out, it follows from the two.

    Why: The factor is how many query tiles share one row of the block lists. A larger one makes shorter lists, which
    are built faster, of coarser blocks, which hold more keys that no query sees.

    Fix: 256 with `tile_m: 128` and `subtile_factor: 1` -> `subtile_factor: 2`, or `sparse_block: [128, 128]`.
    """
    if "subtile_factor" not in case.config:
        return
    factor, tile_m, sparse_block = number(case, "subtile_factor"), number(case, "tile_m"), block(case)
    if not factor:
        message = f"subtile_factor is {case.config['subtile_factor']}, not at least 1"
        yield Violation("config.subtile_factor", message, (Fix("config.subtile_factor", 1),))
    elif sparse_block and tile_m and sparse_block[0] != factor * tile_m and not mask_form.is_native(case.config):
        block_q, block_kv = sparse_block
        message = f"query blocks of {block_q} are not subtile_factor * tile_m = {factor} * {tile_m}"
        fixes = [Fix("sparse_block", (factor * tile_m, block_kv), "rebuild the mask")]
        if block_q % tile_m == 0:
            fixes.append(Fix("config.subtile_factor", block_q // tile_m))
        yield Violation("sparse_block", message, tuple(fixes))
