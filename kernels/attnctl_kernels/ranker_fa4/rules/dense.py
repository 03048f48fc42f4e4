"""RFA4: what the ranker's wrapper demands of its block arrays, its lengths and its switches."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_fa4.spec import BLOCK
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

V1_ARCHES = ("sm_100", "sm_103")
PACKED = ("user_lens", "packed_seq_len")
V2_ARCHES_WITHOUT_CAP = ("sm_80", "sm_86", "sm_89")


@rule(
    "RFA4-001",
    why="arrays built for another length skip tiles or are read out of bounds",
    upstream=(
        "block-sparse arrays cover {} m-tiles but the kernel iterates {} (seq_len={})",
        "block-sparse arrays cover {} m-tiles but the kernel will iterate {} (packed_S={}). Pass packed_seq_len",
    ),
)
def block_arrays_built_for_another_length(case: Case) -> Iterator[Violation]:
    """The block arrays do not cover the query tiles that the kernel walks.

    What: `layout.num_blocks` equals `seq_len / 128`, rounded up. A layout for 2048 tokens has 16 blocks; a kernel
    call with 1000 tokens walks 8. `num_blocks` is the second to last dimension of the full-block index array.

    Why: The kernel reads one row of the arrays per tile of 128 queries. With fewer rows it reads out of bounds;
    with more, a cache handed out the arrays of another sequence length, and their key lists belong to other tiles.

    Fix: Rebuild the arrays with the padded length of the call, or make the cache of layouts keyed on (seq_len,
    block): 1000 tokens -> 8 blocks. Or call the kernel with the length that the arrays cover: 16 blocks -> 2048
    tokens.
    """
    if case.layout is None:
        return
    length = case.problem.seqlen_q
    needed = _blocks(length)
    if case.layout.num_blocks is not None:
        field, covered = "layout.num_blocks", case.layout.num_blocks
        rebuilt = Fix(field, needed, "rebuild the arrays")
    elif case.layout.seq_len is not None:
        field, covered = "layout.seq_len", _blocks(case.layout.seq_len)
        rebuilt = Fix(field, length, "rebuild the arrays")
    else:
        return
    if covered != needed:
        yield Violation(
            field,
            f"the block arrays cover {covered} tiles of {BLOCK} but the kernel iterates {needed} (seqlen_q={length})",
            (rebuilt, Fix("problem.seqlen_q", covered * BLOCK)),
        )


@rule(
    "RFA4-002",
    why="a block of the dense layout is visible as a whole or not at all",
    upstream=("dense block-sparse needs tile-aligned lengths (hist={}, cand={})",),
)
def lengths_not_aligned_to_blocks(case: Case) -> Iterator[Violation]:
    """The history or the candidates end inside a block.

    What: `history_len` and `seq_len - history_len` are multiples of 128, where `history_len` counts the user prefix
    too: `num_user_prefix_tokens + history_seq_len`. Upstream's own defaults, 1 + 1024 = 1025, fail.

    Why: The layout lists full blocks only. A block that is half history and half candidates would need a mask
    inside.

    Fix: 1025 -> 1024, for example 1 prefix token with 1023 of history; 1000 tokens in all -> 1024.
    """
    history, length = case.problem.mask.history_len, case.problem.seqlen_q
    if case.problem.mask.pattern != "history_candidate" or history is None:
        return
    if history % BLOCK:
        yield Violation(
            "mask.history_len",
            f"history_len={history} is not a multiple of {BLOCK} (remainder {history % BLOCK})",
            tuple(Fix("mask.history_len", each) for each in nearest_multiples(history, BLOCK)),
        )
    if length % BLOCK:
        yield Violation(
            "problem.seqlen_q",
            f"seqlen_q={length} is not a multiple of {BLOCK} (remainder {length % BLOCK}), "
            f"so the candidates end inside a block",
            tuple(Fix("problem.seqlen_q", each) for each in nearest_multiples(length, BLOCK)),
        )


@rule(
    "RFA4-003",
    versions=("xai-v1",),
    why="version xai-v1 has Blackwell kernels only",
    upstream=(
        "requires GB200 or GB300 (got {})",
        "requires A100, H100, GB200 or GB300 (got {})",
        "cutedsl ranker attention: unsupported compute capability {}.x",
    ),
)
def device_not_supported(case: Case) -> Iterator[Violation]:
    """The first version of the ranker runs on GB200 and GB300 only.

    What: Version `xai-v1` needs `sm_100` or `sm_103`; `xai-v2` runs on compute capability 8 to 11, though the ranker's
    attention modules let only A100, H100, GB200 and GB300 through.

    Why: On another device the first version looks for fallback modules that are not part of it, and ends in
    ModuleNotFoundError.

    Fix: `version: xai-v2`, or another family: `ranker_fa3` is made for `sm_90`.
    """
    if case.arch is not None and case.arch not in V1_ARCHES:
        fixes = (Fix("version", "xai-v2"), *(Fix("arch", each) for each in V1_ARCHES))
        yield Violation("arch", f"xai-v1 does not run on {case.arch}", fixes)


@rule(
    "RFA4-004",
    why="the dense kernel has no causal mask and no score function",
    upstream=(
        "CuTeDSL FA4 does not support causal attention",
        "does not support softcap (got attn_logit_cap={}). Use qk_norm=True instead.",
        "requires qk_norm=True for stable training",
        "attn_logit_cap > 0 needs score_mod",
        "attn_logit_cap is SM90/SM100 only",
        "wrapper does not wire the attn_logit_cap score_mod (got attn_logit_cap={})",
    ),
)
def switch_not_supported(case: Case) -> Iterator[Violation]:
    """A causal mask, a logit cap, or no query-key norm.

    What: The mask is not causal. `attn_logit_cap` is 0 for version `xai-v1`, for `xai-v2` on compute capability 8,
    and for packed rows. `qk_norm` is true for `xai-v1` and for packed rows.

    Why: A cap is a function of the scores, which only the dense kernels of `xai-v2` have, and those for compute
    capability 8 not together with block lists. Normalised queries and keys keep the logits small instead.

    Fix: `attn_logit_cap: 0` and `qk_norm: true`; `pattern: history_candidate` or `dense`.
    """
    config = case.config
    if case.problem.mask.pattern == "causal":
        yield Violation("mask.pattern", "the ranker has no causal mask", (Fix("mask.pattern", "dense"),))
    cap, packed = config.get("attn_logit_cap"), any(config.get(name) is not None for name in PACKED)
    plain = case.version == "xai-v1" or packed
    capped = not plain and case.arch not in V2_ARCHES_WITHOUT_CAP
    if isinstance(cap, int | float) and cap > 0 and not capped:
        where = f"{case.version} on {case.arch}" if case.arch else case.version
        where += " with packed rows" if packed else ""
        field = "config.attn_logit_cap"
        yield Violation(field, f"{where} cannot cap logits (attn_logit_cap={cap})", (Fix(field, 0.0),))
    if config.get("qk_norm") is False and plain:
        yield Violation("config.qk_norm", "qk_norm is off", (Fix("config.qk_norm", True),))


@rule("RFA4-005", why="outputs and gradients are declared bfloat16, and nothing checks the inputs")
def dtype_is_not_bfloat16(case: Case) -> Iterator[Violation]:
    """The inputs are not bfloat16.

    What: `dtype: bfloat16`. Other types are not refused.

    Why: The wrapper declares its outputs and gradients as bfloat16 whatever comes in, so the bytes are read as
    another type: wrong numbers without a message.

    Fix: Cast queries, keys and values to bfloat16.
    """
    if case.problem.dtype != "bfloat16":
        yield Violation(
            "problem.dtype", f"dtype={case.problem.dtype} is read as bfloat16", (Fix("problem.dtype", "bfloat16"),)
        )


def _blocks(length: int) -> int:
    return -(-length // BLOCK)
