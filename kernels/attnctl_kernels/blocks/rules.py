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
    """A tile of fewer than 16 or more than 4096 rows or keys.

    What: `block_q` and `block_kv` are 16 to 4096.

    Why: Every visited tile costs about a dozen calls into PyTorch, whatever its size. Below 16 rows or keys those calls
    take nearly all of the time: 8192 queries by 8192 keys in tiles of 8 are a million tiles, and one forward pass takes
    the better part of a minute. Zero or less is no tile at all. At the other end the scores of one tile, 4 bytes each
    for every head and batch row, are held in memory at once: 64 MiB per head at 4096 x 4096, too much for any cache.

    Fix: The end of the range that is nearer.
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
    """A tile whose size is not a multiple of 16: it runs, slower than its size suggests.

    What: `block_q` and `block_kv` are multiples of 16.

    Why: Other sizes waste part of the last vector of every row. For `block_kv` that shows most: on one CPU core, tiles
    of 128 rows by 63 keys took 38 % longer per score than 128 by 64, and 128 by 127 took 22 % longer than 128 by 128.

    Fix: The multiples of 16 around it; 100 -> 96 or 112.
    """
    for name, size in _block_sizes(case):
        nearest = nearest_multiples(size, _GRAIN)
        if nearest and _GRAIN < size < _LARGEST:
            field = f"config.{name}"
            fixes = tuple(Fix(field, value) for value in nearest)
            yield Violation(field, f"{name}={size} is not a multiple of {_GRAIN}", fixes)


@rule("BLOCKS-003", why="a sparse block is listed or skipped as a whole, so it consists of whole tiles")
def sparse_block_not_a_multiple_of_tile(case: Case) -> Iterator[Violation]:
    """The sparse block does not consist of whole tiles.

    What: `sparse_block` is a multiple of `block_q` and of `block_kv`.

    Why: Block lists say of each sparse block whether it is empty, partial or full. The kernel walks tiles; one that lay
    across two sparse blocks would have no class of its own.

    Fix: The nearest multiples of the tile: `sparse_block: [96, 128]` with tiles of 64 x 64 becomes 64 or 128 rows. Or
    leave `sparse_block` out: the lists are then made in tiles, which skips most.
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
    """A tile that is larger than the sequence is cut to it.

    What: `block_q` and `block_kv` are at most the first power of two that holds the sequence.

    Why: A tile ends with the rows and keys that exist, so that all larger sizes are one and the same config under
    different names. It runs, but not as written.

    Fix: That power of two: 512 -> 128 for a sequence of 100.
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
