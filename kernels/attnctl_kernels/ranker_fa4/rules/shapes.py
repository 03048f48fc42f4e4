"""RFA4-006 to RFA4-009: head sizes, head groups, the scale, and lengths on sm_80."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, sqrt

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_fa4.spec import BLOCK
from attnctl_kernels.rule import Fix, Severity, Violation, length_fixes, rule

LARGEST_HEAD = 128


@rule("RFA4-006", why="S, dP, dK and dV of a larger head do not fit the 512 columns of tensor memory")
def head_too_large(case: Case) -> Iterator[Violation]:
    """The head is larger than the kernels' tiles, or V has another one.

    What: `head_dim`, rounded up to 32, is at most 128, and `head_dim_v` equals it.

    Why: The backward kernel asserts the size without a message, while it is traced. The wrapper builds its kernels for
    one head dimension, that of Q, so that the pair 192 and 128, which the kernels themselves have, cannot be had.

    Fix: 160 -> 128; `head_dim_v: 64` beside 128 -> 128, with zeros.
    """
    size, size_v = case.problem.head_dim, case.problem.head_dim_v
    if -(-size // 32) * 32 > LARGEST_HEAD:
        fix = Fix("problem.head_dim", LARGEST_HEAD)
        yield Violation("problem.head_dim", f"head_dim={size} is above {LARGEST_HEAD}", (fix,))
    elif size_v != size:
        fix = Fix("problem.head_dim_v", size)
        yield Violation("problem.head_dim_v", f"head_dim_v={size_v} differs from head_dim={size}", (fix,))


@rule("RFA4-007", why="packed heads read the lists of one of them, and nothing checks that the others are alike")
def lists_per_head_with_packed_heads(case: Case) -> Iterator[Violation]:
    """Block arrays per query head, where the kernel packs the heads of a group.

    What: With num_heads_q above num_heads_kv, and a ratio that divides 128, `layout.num_heads` is 1.

    Why: The wrapper packs the query heads of a key head into one tile, whose rows are looked up by the key head. A
    mask that differs from head to head is replaced by that of another head, without a message. flash-attn-4's own
    entry would not pack here.

    Fix: One mask for all heads: arrays with a head dimension of 1. 8 heads over 2 key heads have a ratio of 4, which
    divides 128.
    """
    problem, heads = case.problem, case.layout.num_heads if case.layout else None
    ratio = problem.num_heads_q // problem.num_heads_kv
    if heads is not None and heads > 1 and ratio > 1 and BLOCK % ratio == 0:
        message = f"the arrays have {heads} heads, and {ratio} query heads per key head are packed"
        yield Violation("layout.num_heads", message, (Fix("layout.num_heads", 1, "one mask for all heads"),))


@rule(
    "RFA4-008",
    severity=Severity.WARNING,
    why="the wrapper's cache of compiled kernels does not know the scale",
)
def scale_is_not_in_the_cache_key(case: Case) -> Iterator[Violation]:
    """A softmax scale of its own, which a cached kernel may not have.

    What: `softmax_scale` is left out, or 1 / sqrt(head_dim), unless one process uses one scale.

    Why: The scale is compiled into the kernel, and the kernel is kept by head size, heads, batch and length. A second
    call with the same shapes and another scale runs the first kernel: wrong numbers without a message.

    Fix: Scale the queries instead, or keep one scale per process: at head_dim 128 the usual one is 0.08838834764831845.
    """
    scale, usual = case.problem.softmax_scale, 1 / sqrt(case.problem.head_dim)
    if scale is not None and not isclose(scale, usual, rel_tol=1e-6):
        message = f"softmax_scale={scale:g} is compiled in, and a kernel cached for another scale would be used"
        yield Violation("problem.softmax_scale", message, (Fix("problem.softmax_scale", usual),))


@rule(
    "RFA4-009",
    arches=("sm_80", "sm_86", "sm_89"),
    versions=("xai-v2",),
    why="the kernel for sm_80 has no tile that ends early",
    upstream=(
        "SM80 cutedsl ranker attention requires seq_len % 128 == 0",
        "SM80 cutedsl ranker varlen attention requires packed_S % 128 == 0",
    ),
)
def length_not_whole_tiles_on_ampere(case: Case) -> Iterator[Violation]:
    """The sequence ends inside a tile (sm_80, sm_86, sm_89).

    What: seq_len is a multiple of 128. For `history_candidate` RFA4-002 says so on every arch.

    Why: The other kernels mask the end of the last tile, this one does not.

    Fix: 1000 -> 1024.
    """
    length = case.problem.seqlen_q
    if case.problem.mask.pattern != "history_candidate" and length % BLOCK:
        message = f"seqlen_q={length} is not a multiple of {BLOCK} on {case.arch}"
        yield Violation("problem.seqlen_q", message, length_fixes("problem.seqlen_q", length, BLOCK))
