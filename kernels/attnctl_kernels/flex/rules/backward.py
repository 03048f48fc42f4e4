"""FLEX-002 and FLEX-010: the Triton backward kernel."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import (
    BACKWARD,
    KEYS,
    REBUILD,
    ROWS,
    Side,
    field,
    is_given,
    largest_tile,
    rebuilt,
)
from attnctl_kernels.rule import Fix, Violation, rule

_BY_NAME = {each.name: each for each in BACKWARD}
_NESTED = (("BLOCK_N1", "BLOCK_M1"), ("BLOCK_M2", "BLOCK_N2"))


@rule(
    "FLEX-002",
    passes=("backward",),
    why="inductor compares its own tiles with the sparse block, and never those that the config gives",
)
def sparse_block_is_not_whole_backward_tiles(case: Case) -> Iterator[Violation]:
    """A sparse block is not a whole number of backward tiles, or the two tiles of a kernel do not nest.

    What: `BLOCK_M1` and `BLOCK_M2` divide the first value of `sparse_block`, `BLOCK_N1` and `BLOCK_N2` the second; so
    do inductor's own tiles (64 x 128 and 128 x 64 at head_dim 64 to 128 on sm_90). `BLOCK_M1` divides `BLOCK_N1`, and
    `BLOCK_N2` divides `BLOCK_M2`.

    Why: A tile that inductor picked by itself and that does not fit is dropped; where it was the only one, compiling
    fails, whatever `bwd_BLOCK_*` say. Tiles of the config are not compared with the sparse block at all: the wrong row
    of the lists is read, and the gradients are wrong without a message. Only the nesting is asserted.

    Fix: `sparse_block: [64, 64]` at head_dim 128 on sm_90 -> [128, 128], or `max_autotune: true`, which tries tiles of
    32 and 64 too. `bwd_BLOCK_M1: 64`, `bwd_BLOCK_N1: 128`, `bwd_BLOCK_M2: 128` and `bwd_BLOCK_N2: 64` fit blocks of
    128.
    """
    tile, block = options.backward_tile(case), options.sparse(case)
    if tile is None or min(tile) < 1:
        return
    sizes = {each.name: int(getattr(tile, each.name.lower())) for each in BACKWARD}
    if block is not None:
        yield from _own_tile(case, block)
        yield from (_stray(case, each, sizes, block) for each in BACKWARD if _strays(case, each, sizes, block))
    for outer, inner in _NESTED:
        if sizes[outer] % sizes[inner]:
            shared = gcd(sizes[outer], block[_BY_NAME[inner].side]) if block else sizes[outer]
            fitting = largest_tile(shared)
            fixes = (Fix(field(case, inner), fitting),) if fitting else ()
            message = f"{inner} {sizes[inner]} does not divide {outer} {sizes[outer]}"
            yield Violation(field(case, inner), message, fixes, "" if fixes else f"let {inner} divide {outer}")


def _own_tile(case: Case, block: SparseBlock) -> Iterator[Violation]:
    assert case.arch is not None  # else there is no tile
    own = tiles.backward_default(case.problem, case.arch, case.version)
    autotuned = any(_fits(block, each, case.version) for each in tiles.AUTOTUNED_BACKWARD)
    if _fits(block, own[:4], case.version) or (autotuned and options.switch(case, "max_autotune")):
        return
    rows, keys = lcm(own.block_m1, own.block_m2), lcm(own.block_n1, own.block_n2)
    fixes = list(rebuilt(block, rows, keys))
    if autotuned:
        fixes.append(Fix("config.max_autotune", value=True, price="compiles a dozen tiles"))
    message = (
        f"inductor's own tiles of {own.block_m1}x{own.block_n1} and {own.block_m2}x{own.block_n2} do not fit "
        f"sparse blocks of {block[ROWS]}x{block[KEYS]}: no backward kernel is left"
    )
    if case.version == tiles.OLD and case.problem.seqlen_q < tiles.DECODE_BELOW:  # the query block is what it is
        yield Violation("sparse_block", message, (), f"pad the queries to {tiles.DECODE_BELOW}, or use torch 2.13")
    else:
        yield Violation("sparse_block", message, tuple(fixes))


def _fits(block: SparseBlock, tile: tuple[int, ...], version: str) -> bool:
    """Upstream's filter; torch 2.5 holds every tile against both sides."""
    m1, n1, m2, n2 = tile
    units = (lcm(m1, n1),) * 2 if version == tiles.OLD else (lcm(m1, m2), lcm(n1, n2))
    return block[ROWS] % units[ROWS] == 0 and block[KEYS] % units[KEYS] == 0


def _strays(case: Case, option: Side, sizes: dict[str, int], block: SparseBlock) -> bool:
    return is_given(case, option.name) and block[option.side] % sizes[option.name] != 0


def _stray(case: Case, option: Side, sizes: dict[str, int], block: SparseBlock) -> Violation:
    value, size = sizes[option.name], block[option.side]
    outer = {inner: outer for outer, inner in _NESTED}.get(option.name)
    fixes = []
    fitting = largest_tile(gcd(size, sizes[outer]) if outer else size)
    if fitting:
        fixes.append(Fix(field(case, option.name), fitting))
    if not outer or sizes[outer] % value == 0:
        whole = -(-size // value) * value
        pair = (whole, block[KEYS]) if option.side == ROWS else (block[ROWS], whole)
        fixes.append(Fix("sparse_block", pair, REBUILD))
    message = f"{option.name} {value} does not divide {option.what} blocks of {size}: wrong gradients"
    return Violation(field(case, option.name), message, tuple(fixes), "" if fixes else f"use {option.name} 16")


@rule(
    "FLEX-010",
    why="the products of the backward pass mix all three tensors",
    upstream=(
        (
            "Backward pass with mixed query, key, and value dtype is not supported, got query.dtype={}, key.dtype={}, "
            "and value.dtype={}"
        ),
        (
            "Expected query, key, and value to have the same dtype, but got query.dtype: {}, key.dtype: {}, and "
            "value.dtype: {}"
        ),
    ),
)
def keys_of_another_type(case: Case) -> Iterator[Violation]:
    """Queries and keys have different element types where the Triton kernels cannot mix them.

    What: In the backward pass, and in torch 2.5 altogether, `dtype_kv` equals `dtype` or is left out.

    Why: The forward kernel of torch 2.13 casts keys and values to the type of the queries as it loads them. The
    backward kernel does not, and refuses.

    Fix: Cast keys and values before the call: bfloat16 queries with float16 keys -> bfloat16.
    """
    problem, old = case.problem, case.version == tiles.OLD
    if problem.dtype_kv in (None, problem.dtype):
        return
    if old or (not options.is_forward(case) and options.kernel(case) == "triton"):
        where = "torch 2.5 does not mix" if old else "the backward kernel does not mix"
        message = f"{where} dtype {problem.dtype} with dtype_kv {problem.dtype_kv}"
        yield Violation("problem.dtype_kv", message, (Fix("problem.dtype_kv", problem.dtype),))
