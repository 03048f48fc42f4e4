"""FA4-S023 to S026: block lists or the kernel's own form of the mask, and how many query tiles a block has."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.fa4 import mask_form
from attnctl_kernels.fa4.call import Call, ceil_div
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


@rule(
    "FA4-S026",
    passes=("forward",),
    arches=("sm_90",),
    why="such a tile reads zeros before the first key, and takes their scores of 0 into the log-sum-exp",
)
def query_tile_before_every_key(case: Case) -> Iterator[Violation]:
    """Whole query tiles see no key, under a causal flag or a window of the kernel's own (sm_90).

    What: With `mask_form: native` (or `causal`, or a `window_right`) there are fewer queries without any key than a
    query tile has: `tile_m`, shared by the heads of a group that are packed.

    Why: Queries are aligned with keys at the end, so that with more queries than keys the first ones see nothing. The
    kernel visits at least one key tile for each query tile; here that one lies before the first key and is filled with
    zeros. The output is right, 0. The log-sum-exp of some rows is the logarithm of a number of keys that do not
    exist, where it should be -inf, and a backward pass or a merge of partial results takes it. With block lists such a
    tile has an empty list.

    Fix: `mask_form: blocks`; or cut the queries: 777 over 500 keys -> 500.
    """
    call, problem = Call(case), case.problem
    right = call.window[1]
    if right is None or not any(call.causal_and_local) or not call.tile_m:
        return
    blind = problem.seqlen_q - problem.seqlen_k - right
    queries = ceil_div(call.tile_m, call.group if call.pack_gqa else 1)
    if blind >= queries:
        fixes = [Fix("problem.seqlen_q", problem.seqlen_k)]
        if mask_form.is_native(case.config):
            fixes.insert(0, AS_BLOCKS)
        message = f"the first {blind} queries see no key, and a query tile has {queries}"
        yield Violation("config.mask_form" if len(fixes) == 2 else "problem.seqlen_q", message, tuple(fixes))
