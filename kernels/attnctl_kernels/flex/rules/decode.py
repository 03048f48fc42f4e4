"""FLEX-008 and FLEX-028: the kernel for short queries."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import KEYS, REBUILD, ROWS, largest_tile
from attnctl_kernels.rule import Fix, Severity, Violation, rule

_TRITON = Fix("config.BACKEND", "TRITON")
_FORCE = Fix("config.FORCE_USE_FLEX_ATTENTION", value=True)


@rule(
    "FLEX-008",
    passes=("forward",),
    why="one tile holds all queries of all query heads that share a key head",
    upstream=(
        (
            "BACKEND='TRITON_DECODE' was specified but flex_decoding cannot be used for this input. flex_decoding is "
            "only available for short sequence lengths with specific configurations."
        ),
        "Number of shared query heads sharing the same KV head must be power of 2.",
    ),
)
def decoding_kernel_cannot_run(case: Case) -> Iterator[Violation]:
    """The decoding kernel is asked for, or taken by itself, and cannot run.

    What: `BACKEND: TRITON_DECODE` needs fewer than 128 queries, a power of two of query heads per key head, a mask
    with one head (or, without groups, one per query head), a batch size that is not dynamic, and no max_scores. Its
    tile `BLOCK_M`, by default the next power of two of seqlen_q * group and at least 16, divides the first value of
    `sparse_block`, and 64 keys, or the sparse block where that is smaller, divide the second. torch 2.5 takes this
    kernel for all short queries, and raises where the group is not a power of two.

    Why: 100 queries in groups of 2 make 200 rows and a tile of 256, which does not divide blocks of 128. torch 2.13
    takes the kernel for such a call by itself, drops the only tile, and fails to compile.

    Fix: 100 queries in groups of 2: `BLOCK_M: 128`, `sparse_block: [256, 128]`, or `BACKEND: TRITON`. 12 query heads
    on 2 key heads, 6 each: `BACKEND: TRITON`; in torch 2.5 `FORCE_USE_FLEX_ATTENTION: true`.
    """
    if options.kernel(case) != "decode":
        return
    if case.version == tiles.OLD:
        group = case.problem.num_heads_q // case.problem.num_heads_kv
        if not tiles.is_power_of_two(group):
            message = f"{group} query heads per key head are not a power of two"
            yield Violation("problem.num_heads_kv", message, (_FORCE,))
    else:
        for name, reason in options.obstacles_to_decoding(case).items():
            yield Violation(name, f"BACKEND TRITON_DECODE cannot be used: {reason}", (_TRITON,))
    block = options.sparse(case)
    if block is not None:
        yield from _tile(case, block)


def _tile(case: Case, block: SparseBlock) -> Iterator[Violation]:
    old = case.version == tiles.OLD
    rows = 1 if old else case.config.get("BLOCK_M", tiles.decode_block_m(case.problem))
    keys = tiles.decode_block_n(case.arch, block[KEYS])
    if not isinstance(rows, int) or rows < 1:
        return
    faults = []
    if block[ROWS] % rows:
        faults.append(f"its tile of {rows} rows does not divide query blocks of {block[ROWS]}")
    if block[KEYS] % keys:
        faults.append(f"its steps of {keys} keys do not divide key blocks of {block[KEYS]}")
    if faults:
        group = case.problem.num_heads_q // case.problem.num_heads_kv
        fitting = largest_tile(block[ROWS], lambda tile: tile >= group)
        fixes = [Fix("config.BLOCK_M", fitting)] if fitting and not block[KEYS] % keys else []
        whole = tuple(-(-size // unit) * unit for size, unit in zip(block, (rows, keys), strict=True))
        fixes += [Fix("sparse_block", whole, REBUILD), _FORCE if old else _TRITON]
        yield Violation("sparse_block", "the decoding kernel cannot run: " + " and ".join(faults), tuple(fixes))


@rule(
    "FLEX-028",
    severity=Severity.WARNING,
    passes=("forward",),
    versions=("2.13",),
    why="the main kernel computes a whole tile for a few queries, and gives all keys of a head to one program",
)
def short_queries_on_the_main_kernel(case: Case) -> Iterator[Violation]:
    """Few queries run on the main kernel, because the decoding kernel cannot take them.

    What: With fewer than 128 queries and no `BACKEND`, the query heads per key head are a power of two, the mask has
    one head, and the batch size is not dynamic.

    Why: torch 2.13 falls back without a word where FLEX-008's needs are not met. At 1 query a tile of 64 rows does 64
    times the work, and one program per head walks all keys.

    Fix: 12 query heads on 2 key heads: 3 key heads, 4 each, where the model allows that. `BACKEND: TRITON` says that
    the main kernel is meant.
    """
    problem = case.problem
    if problem.seqlen_q >= tiles.DECODE_BELOW or options.kernel(case) != "triton" or options.backend(case) != "AUTO":
        return
    if options.switch(case, "FORCE_USE_FLEX_ATTENTION"):
        return
    for name, reason in options.obstacles_to_decoding(case).items():
        message = f"{problem.seqlen_q} queries run on the main kernel: {reason}"
        fixes = [Fix(_TRITON.field, _TRITON.value, "accept it")]
        if name == "problem.num_heads_kv":
            message += ", which the decoding kernel needs"
            fixes.append(Fix(name, _keys_in_power_of_two_groups(problem.num_heads_q, problem.num_heads_kv)))
        yield Violation(name, message, tuple(fixes))


def _keys_in_power_of_two_groups(queries: int, at_least: int) -> int:
    """The smallest number of key heads that share the query heads in groups of 1, 2, 4 and so on."""
    keys = queries
    while keys % 2 == 0 and keys // 2 >= at_least:
        keys //= 2
    return keys
