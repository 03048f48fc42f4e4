"""RTRI-001, 004 and 005: what the loops of the kernels visit."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_triton.spec import V1, V2, blocks, is_forward
from attnctl_kernels.rule import Fix, Violation, length_fixes, rule

_OF_V1 = ("block_q", "block_k")
_FAR = 1024  # as far as a window would be changed


def clamped(case: Case, name: str, size: int) -> int:
    """Upstream's `min(block, seq_len)`, which the backward pass of the second module makes too late."""
    late = case.version == V2 and "bwd" in name
    return size if late else min(size, case.problem.seqlen_q)


def is_causal(case: Case) -> bool:
    return case.problem.mask.pattern in ("causal", "sliding_window")


@rule(
    "RTRI-001",
    why="the kernels have no mask for a ragged last block",
    upstream=(
        "seq_len {} must be divisible by block_q_fwd {}",
        "seq_len {} must be divisible by block_k_fwd {}",
        "seq_len {} must be divisible by block_q_bwd_dq {}",
        "seq_len {} must be divisible by block_k_bwd_dq {}",
        "seq_len {} must be divisible by block_q_bwd_dkv {}",
        "seq_len {} must be divisible by block_k_bwd_dkv {}",
        "seq_len {} must be divisible by block_q {}",
        "seq_len {} must be divisible by block_k {}",
    ),
)
def length_is_not_whole_blocks(case: Case) -> Iterator[Violation]:
    """The sequence is not a whole number of blocks, or queries and keys differ in number.

    What: There are as many queries as keys, and every block of the pass divides that length. A block longer than the
    sequence becomes the sequence, except in the backward pass of `ranker_attention_v2`.

    Why: `ranker_attention` checks nothing: the last block reads and writes behind the end, into the next head.
    `ranker_attention_v2` asserts; its backward pass does so before it shortens the blocks, so that 64 tokens pass
    forward and fail backward.

    Fix: 1000 tokens in blocks of 128 -> 1024 (2.4 % more tokens) or 896; or blocks of 8, which are too small. Training
    on `ranker_attention_v2` takes at least 128 tokens.
    """
    problem = case.problem
    if problem.seqlen_k != problem.seqlen_q:
        fix = Fix("problem.seqlen_k", problem.seqlen_q)
        yield Violation(
            "problem.seqlen_k", f"seqlen_k {problem.seqlen_k} differs from seqlen_q {problem.seqlen_q}", (fix,)
        )
    length = problem.seqlen_q
    wrong = {name: clamped(case, name, size) for name, size in blocks(case).items()}
    wrong = {name: size for name, size in wrong.items() if length % size}
    if wrong:
        fixes = list(length_fixes("problem.seqlen_q", length, lcm(*blocks(case).values())))
        if len(wrong) == 1:
            ((name, size),) = wrong.items()
            smaller = next((each for each in (128, 64, 32, 16) if each < size and length % each == 0), None)
            fixes += [Fix(f"config.{name}", smaller)] if smaller else []
        listed = " and ".join(f"{name} {size}" for name, size in wrong.items())
        fate = "the last block is read behind the end" if case.version == V1 else "the kernel asserts"
        yield Violation("problem.seqlen_q", f"seqlen_q {length} is not a multiple of {listed}: {fate}", tuple(fixes))


@rule(
    "RTRI-004", versions=(V1,), why="the last key block of a query block is found from the index of its first row alone"
)
def causal_blocks_lose_keys(case: Case) -> Iterator[Violation]:
    """A causal mask with query blocks that do not lie inside one key block (`ranker_attention`).

    What: With a causal or windowed mask, `block_k` is a multiple of `block_q`, unless one block holds the sequence.

    Why: The key loop ends at block start_q * block_q // block_k, the one that holds the first row of the query block.
    Rows that reach into the next key block never see it. `block_q: 128` with `block_k: 64` loses keys of 512 of 1024
    rows, 48 with 64 of 240; no message says so.

    Fix: 64 with 128, or equal blocks.
    """
    sizes = blocks(case)
    if not is_causal(case) or len(sizes) < 2:
        return
    rows, keys = (clamped(case, name, sizes[name]) for name in _OF_V1)
    length = case.problem.seqlen_q
    if keys % rows and keys < length:
        period = lcm(rows, keys)
        lost = length // period * _lost(period, rows, keys) + _lost(length % period, rows, keys)
        smaller = next((each for each in (128, 64, 32, 16) if each <= rows and keys % each == 0), None)
        larger = next((each for each in (16, 32, 64, 128, 256) if each > keys and each % rows == 0), None)
        fixes = [Fix("config.block_q", smaller)] if smaller else []
        fixes.append(Fix("config.block_k", larger or rows))
        message = f"block_k {keys} is not a multiple of block_q {rows}: {lost} of {length} rows miss keys"
        yield Violation("config.block_k", message, tuple(fixes))


def _lost(length: int, rows: int, keys: int) -> int:
    """Rows of query blocks that lie behind the key block in which the query block starts."""
    starts = range(0, length, rows)
    return sum(max(0, min(start + rows, length) - (start // keys + 1) * keys) for start in starts)


@rule("RTRI-005", why="the first key block of a window is counted back from the last, rounded down")
def window_loses_keys(case: Case) -> Iterator[Violation]:
    """A sliding window that the blocks do not cover, or that the kernel ignores.

    What: In `ranker_attention`, (window + block_q) // block_k is at least ceil((window - 1) / block_k) + 1, and in the
    backward pass (window + block_k) // block_q at least (window + block_k - 2) // block_q + 1, unless so many blocks
    hold the whole sequence. `ranker_attention_v2` has no window.

    Why: The loops visit that many blocks and no more. With 128 x 128, windows of 128 and 129 work, 100 and 130 lose
    keys of some rows, and nothing says so; a `block_q` below `block_k` covers no window at all. The second module
    takes `window_len` and deletes it.

    Fix: 128 x 128: window 100 -> 128. 64 x 64: 200 -> 256.
    """
    problem, sizes = case.problem, blocks(case)
    window = problem.mask.window
    if problem.mask.pattern != "sliding_window" or window is None or window < 1:
        return
    if case.version == V2:
        yield Violation("mask.pattern", f"{V2} ignores the window", (Fix("mask.pattern", "causal"), Fix("version", V1)))
    elif len(sizes) == 2:
        rows, keys = (clamped(case, name, sizes[name]) for name in _OF_V1)
        if not covers(case, window, rows, keys):
            near = [each for each in _outwards(window, problem.seqlen_k) if covers(case, each, rows, keys)][:2]
            fixes = [Fix("mask.window", each) for each in near]
            if rows != keys and covers(case, window, keys, keys):
                fixes.append(Fix("config.block_q", keys))
            visited, needed = _blocks_visited(case, window, rows, keys)
            message = f"window {window} needs {needed} blocks of {rows} x {keys}, and the kernel visits {visited}"
            advice = "" if fixes else f"let block_q equal block_k, and take window {keys} or {2 * keys}"
            yield Violation("mask.window", message, tuple(fixes), advice)


def _blocks_visited(case: Case, window: int, rows: int, keys: int) -> tuple[int, int]:
    if is_forward(case):
        return (window + rows) // keys, -(-(window - 1) // keys) + 1
    # dQ walks keys as the forward pass does; dK and dV walk queries
    forward = (window + rows) // keys, -(-(window - 1) // keys) + 1
    return forward if forward[0] < forward[1] else ((window + keys) // rows, (keys + window - 2) // rows + 1)


def covers(case: Case, window: int, rows: int, keys: int) -> bool:
    """Whether every visible pair lies in a block that the kernels of the pass visit."""
    length = case.problem.seqlen_q
    visited = (window + rows) // keys
    if visited < min(-(-(window - 1) // keys) + 1, -(-length // keys)):
        return False
    if is_forward(case):
        return True
    visited = (window + keys) // rows
    return visited >= min((keys + window - 2) // rows + 1, -(-length // rows))


def _outwards(value: int, most: int) -> Iterator[int]:
    """Numbers by their distance from ``value``."""
    for distance in range(1, min(most, _FAR) + 1):
        if value - distance >= 1:
            yield value - distance
        if value + distance <= most:
            yield value + distance
