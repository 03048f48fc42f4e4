"""Rules of the `blocks` family."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Severity, Violation, nearest_multiples, rule

_GRAIN = 16
_LARGEST = 4096
_LENGTHS = {"block_q": "seqlen_q", "block_kv": "seqlen_k"}


@rule("BLOCKS-001", why="below it calls cost more than products; above it one tile's scores take 64 MiB per head")
def block_size_out_of_range(case: Case) -> Iterator[Violation]:
    """`block_q` and `block_kv` are 16 to 4096.

    Every visited tile costs about a dozen calls into PyTorch, whatever its size. With tiles of less than 16 rows or
    keys those calls take nearly all of the time: 8192 queries by 8192 keys in tiles of 8 are a million tiles, and one
    forward pass takes the better part of a minute. Zero or less is no tile at all.

    At the other end the scores of one tile, `block_q * block_kv * 4` bytes for every head and batch row, are held in
    memory at once: 64 MiB at 4096 x 4096, and no longer in any cache.

    Fix: the end of the range that is nearer.
    """
    for name, size in _block_sizes(case):
        nearest = min(max(size, _GRAIN), _LARGEST)
        if nearest != size:
            field = f"config.{name}"
            yield Violation(field, f"{name}={size} is not in {_GRAIN}..{_LARGEST}", (Fix(field, nearest),))


@rule(
    "BLOCKS-002", why="vector units take 16 float32 at a time, or 8, and the rest one by one", severity=Severity.WARNING
)
def block_size_not_a_multiple_of_16(case: Case) -> Iterator[Violation]:
    """`block_q` and `block_kv` are multiples of 16.

    Other sizes run and are right, but waste part of the last vector of every row. For `block_kv` that shows most: on
    one CPU core, tiles of 128 rows by 63 keys took 38 % longer per score than 128 by 64, and 128 by 127 took 22 %
    longer than 128 by 128.

    Fix: the multiples of 16 around it.
    """
    for name, size in _block_sizes(case):
        nearest = nearest_multiples(size, _GRAIN)
        if nearest and _GRAIN < size < _LARGEST:
            field = f"config.{name}"
            fixes = tuple(Fix(field, value) for value in nearest)
            yield Violation(field, f"{name}={size} is not a multiple of {_GRAIN}", fixes)


@rule("BLOCKS-003", why="a sparse block is listed or skipped as a whole, so it consists of whole tiles")
def sparse_block_not_a_multiple_of_tile(case: Case) -> Iterator[Violation]:
    """`sparse_block` is a multiple of `(block_q, block_kv)` on both axes.

    Block lists say of each sparse block whether it is empty, partial or full. The kernel walks tiles; a tile that lay
    across two sparse blocks would have no class of its own. Leave `sparse_block` out and the lists are made in tiles,
    which skips most.

    Fix: the nearest multiples of the tile; or tiles that divide the sparse block.

    Example: `sparse_block: [96, 128]` with 64 x 64 tiles; 64 or 128 rows work.
    """
    sizes = dict(_block_sizes(case))
    if case.sparse_block is None or len(sizes) < 2 or min(sizes.values()) < 1:
        return
    faults, below, above = [], [], []
    for given, (name, size) in zip(case.sparse_block, sizes.items(), strict=True):
        nearest = nearest_multiples(given, size) or (given,)
        below.append(nearest[0])
        above.append(nearest[-1])
        if given % size:
            faults.append(f"{given} is not a multiple of {name}={size}")
    if faults:
        fixes = tuple(Fix("sparse_block", block) for block in sorted({tuple(below), tuple(above)}))
        yield Violation("sparse_block", f"sparse_block={list(case.sparse_block)}: {', '.join(faults)}", fixes)


@rule("BLOCKS-004", why="a tile ends where the sequence does", severity=Severity.WARNING)
def block_larger_than_sequence(case: Case) -> Iterator[Violation]:
    """`block_q` and `block_kv` are no larger than the first power of two that holds the sequence.

    A tile is cut to the rows and keys that exist, so all larger sizes are one and the same config under different
    names. It runs, but not as written.

    Fix: that power of two; 128 for a sequence of 100.
    """
    for name, size in _block_sizes(case):
        length = getattr(case.problem, _LENGTHS[name])
        enough = max(_GRAIN, 1 << (length - 1).bit_length())
        if size > enough:
            field = f"config.{name}"
            message = f"{name}={size} is larger than the sequence, {_LENGTHS[name]}={length}"
            yield Violation(field, message, (Fix(field, enough),))


def _block_sizes(case: Case) -> Iterator[tuple[str, int]]:
    """The tile's parameters, as far as they are given."""
    for name in _LENGTHS:
        size = case.config.get(name)
        if isinstance(size, int):
            yield name, size
