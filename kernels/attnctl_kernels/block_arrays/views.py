"""The block arrays of a case as its checks want them: by name, by list, by head. Looked through once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attnctl_kernels.block_arrays import FORWARD, KINDS, PREFIX, BlockArrays
from attnctl_kernels.contract import Case, Mask, PassName, SparseBlock

if TYPE_CHECKING:
    from attnctl_kernels.block_arrays.heads import Heads
    from attnctl_kernels.block_arrays.lists import Survey

LARGEST_GRID = 1 << 26  # blocks of one head that are held at once


def arrays_of(case: Case) -> BlockArrays | None:
    """The block arrays that the profile names, if they could be read."""
    arrays = case.layout.arrays if case.layout else None
    return arrays if arrays and not arrays.fault else None


def stems(pass_name: PassName) -> tuple[str, ...]:
    return tuple(f"{PREFIX[pass_name]}{kind}_block" for kind in KINDS)


def arrays_by_name(case: Case) -> Iterator[tuple[BlockArrays, str, Any]]:
    arrays = arrays_of(case)
    if arrays:
        for stem in stems(case.pass_name):
            for name in (f"{stem}_cnt", f"{stem}_idx"):
                if name in arrays.arrays:
                    yield arrays, name, arrays.arrays[name]


def first_index(arrays: BlockArrays, pass_name: PassName) -> str:
    return next(f"{stem}_idx" for stem in stems(pass_name) if f"{stem}_idx" in arrays.arrays)


def surveys(case: Case) -> Iterator[tuple[BlockArrays, str, Survey]]:
    """Each kind of list whose arrays are well formed."""
    arrays, blocks = arrays_of(case), width_of(case)
    if arrays is None or not blocks:
        return
    for kind, stem in zip(KINDS, stems(case.pass_name), strict=True):
        count, index = arrays.pair(case.pass_name, kind)
        if count is None or index is None or not _well_formed(count, index):
            continue
        key = ("survey", stem, blocks)
        if key not in arrays.known:
            from attnctl_kernels.block_arrays.lists import survey  # noqa: PLC0415 - NumPy

            arrays.known[key] = survey(count, index, blocks)
        yield arrays, stem, arrays.known[key]


def _well_formed(count: Any, index: Any) -> bool:
    integers = count.dtype.kind in "iu" and index.dtype.kind in "iu"
    return integers and index.ndim == 4 and count.shape == index.shape[:3]


def heads(case: Case) -> tuple[BlockArrays, Heads] | None:
    """The lists of this pass head by head, beside the mask if it says something; None: they do not fit the blocks."""
    arrays, block, problem = arrays_of(case), case.sparse_block, case.problem
    if arrays is None or block is None or not sound(case, case.pass_name):
        return None
    mask = problem.mask if problem.mask.pattern != "dense" else None
    key = ("heads", case.pass_name, block, mask, problem.seqlen_q, problem.seqlen_k)
    if key not in arrays.known:
        from attnctl_kernels.block_arrays.heads import against_mask  # noqa: PLC0415 - NumPy

        classes = _classes(mask, case, block) if mask else None
        arrays.known[key] = against_mask(arrays, case.pass_name, width_of(case) or 0, classes)
    return arrays, arrays.known[key]


def _classes(mask: Mask, case: Case, block: SparseBlock) -> Any:
    from attnctl_kernels.block_arrays.heads import classes_of  # noqa: PLC0415 - NumPy

    try:
        return classes_of(mask, (case.problem.seqlen_q, case.problem.seqlen_k), block, case.pass_name)
    except ValueError:
        return None  # the mask itself is at fault, and has a finding


def sound(case: Case, pass_name: PassName) -> bool:
    """Whether the lists of a pass can be laid over the blocks of the problem, within memory."""
    arrays, block = arrays_of(case), block_of(case, pass_name)
    if arrays is None or block is None:
        return False
    blocks_q, blocks_kv = blocks_in(case.problem.seqlen_q, block[0]), blocks_in(case.problem.seqlen_k, block[1])
    rows, width = (blocks_q, blocks_kv) if pass_name == FORWARD else (blocks_kv, blocks_q)
    size = arrays.sizes(pass_name)
    if not size or size[2] != rows or rows * width > LARGEST_GRID or 0 in size[:2]:
        return False
    if size[0] not in (1, case.problem.batch_size) or size[1] not in (1, case.problem.num_heads_q):
        return False
    for kind, stem in zip(KINDS, stems(pass_name), strict=True):
        count, index = arrays.pair(pass_name, kind)
        if count is None and index is None:
            continue
        if count is None or index is None or not _well_formed(count, index) or index.shape[:3] != size:
            return False
        key = ("survey", stem, width)
        if key not in arrays.known:
            from attnctl_kernels.block_arrays.lists import survey  # noqa: PLC0415 - NumPy

            arrays.known[key] = survey(count, index, width)
        found = arrays.known[key]
        if found.counts.count or found.outside.count:
            return False
    return True


def block_of(case: Case, pass_name: PassName) -> SparseBlock | None:
    return case.sparse_blocks.get(pass_name) or case.sparse_block


def width_of(case: Case) -> int | None:
    """Blocks that a row of this pass may list."""
    block, problem = case.sparse_block, case.problem
    if block is None:
        return None
    forward = case.pass_name == FORWARD
    return blocks_in(problem.seqlen_k, block[1]) if forward else blocks_in(problem.seqlen_q, block[0])


def blocks_in(length: int, block: int) -> int:
    return -(-length // block)
