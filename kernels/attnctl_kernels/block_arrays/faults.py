"""What is wrong with the block arrays of a case, as violations: what the rules about arrays are made of.

A check that needs well-formed arrays says nothing where they are not: another one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnctl_kernels.block_arrays import BACKWARD, FORWARD, NAMES, BlockArrays
from attnctl_kernels.block_arrays.views import (
    arrays_by_name,
    arrays_of,
    block_of,
    blocks_in,
    first_index,
    heads,
    sound,
    stems,
    surveys,
    width_of,
)
from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation

if TYPE_CHECKING:
    from attnctl_kernels.block_arrays.lists import Place, Places

FILE = "layout.path"
REBUILD = "rebuild the arrays"


def incomplete(case: Case) -> Iterator[Violation]:
    """Counts without indices or the other way round; no arrays at all."""
    arrays = arrays_of(case)
    if arrays is None:
        return
    if not arrays.arrays and case.pass_name == case.passes[0]:
        yield Violation(FILE, f"{arrays.name} holds no block arrays", advice=f"name them {', '.join(NAMES[:4])}")
    for stem in stems(case.pass_name):
        present = [f"{stem}_{part}" for part in ("cnt", "idx") if f"{stem}_{part}" in arrays.arrays]
        if len(present) == 1:
            other = f"{stem}_idx" if present[0].endswith("cnt") else f"{stem}_cnt"
            yield _fault(arrays, other, f"is missing beside {present[0]}", f"save {other} too")


def wrong_dtype(case: Case) -> Iterator[Violation]:
    """Anything but int32."""
    for arrays, name, array in arrays_by_name(case):
        if str(array.dtype) != "int32":
            yield _fault(arrays, name, f"is {array.dtype}, and kernels read int32", "cast it to int32", "index_dtype")


def wrong_shape(case: Case) -> Iterator[Violation]:
    """Rank, sizes that differ within a pass, batch and head sizes that do not broadcast."""
    for arrays, name, array in arrays_by_name(case):
        rank, form = (3, "(batch, heads, rows)") if name.endswith("cnt") else (4, "(batch, heads, rows, width)")
        if array.ndim != rank:
            yield _fault(arrays, name, f"has shape {list(array.shape)}, not {form}", f"give it {rank} dimensions")
            continue
        wanted = arrays.sizes(case.pass_name)
        sizes = array.shape[:3]
        if wanted and tuple(sizes) != wanted:
            message = f"has shape {list(array.shape)}, beside arrays of {list(wanted)} (batch, heads, rows)"
            yield _fault(arrays, name, message, REBUILD)
        elif name.endswith("idx") or not wanted:
            problem = case.problem
            for fact, size, full in zip(
                ("batch_size", "num_heads"), sizes, (problem.batch_size, problem.num_heads_q), strict=False
            ):
                if size not in (1, full):
                    message = f"has {fact} {size}, which is neither 1 nor {full}"
                    yield _fault(arrays, name, message, f"make it 1, or repeat it to {full}", fact)


def wrong_rows_of_keys(case: Case) -> Iterator[Violation]:
    """Arrays of the backward pass that do not have one row per key block."""
    arrays, block = arrays_of(case), case.sparse_block
    if arrays is None or block is None or case.pass_name != BACKWARD:
        return
    size = arrays.sizes(BACKWARD)
    rows, swapped = blocks_in(case.problem.seqlen_k, block[1]), blocks_in(case.problem.seqlen_q, block[0])
    if size and size[2] != rows:
        hint = ", which is that of query blocks: they are not transposed" if size[2] == swapped else ""
        message = f"has {size[2]} rows{hint}; {case.problem.seqlen_k} keys in blocks of {block[1]} make {rows}"
        yield _fault(
            arrays,
            first_index(arrays, BACKWARD),
            message,
            "use the lists of query blocks per key block",
            "num_n_blocks",
        )


def wrong_width(case: Case) -> Iterator[Violation]:
    """More entries per row than there are blocks; counts beyond the entries."""
    blocks = width_of(case)
    for arrays, name, array in arrays_by_name(case):
        if name.endswith("idx") and array.ndim == 4 and blocks and array.shape[3] > blocks:
            message = f"has {array.shape[3]} entries per row, and there are {blocks} blocks"
            fact = "index_width" if case.pass_name == FORWARD else "backward_index_width"
            yield _fault(arrays, name, message, "rebuild the arrays for this length and block size", fact)
    for arrays, stem, found in surveys(case):
        limit = arrays.arrays[f"{stem}_idx"].shape[3]
        yield from _listed(arrays, f"{stem}_cnt", found.counts, f"not in 0 to {limit}")


def out_of_range(case: Case) -> Iterator[Violation]:
    """Blocks that do not exist."""
    for arrays, stem, found in surveys(case):
        yield from _listed(arrays, f"{stem}_idx", found.outside, f"not in 0 to {(width_of(case) or 0) - 1}")


def listed_twice(case: Case) -> Iterator[Violation]:
    """Blocks that a row lists twice, in one list or in two."""
    for arrays, stem, found in surveys(case):
        yield from _listed(arrays, f"{stem}_idx", found.repeated, "listed twice")
    side_by_side = heads(case)
    if side_by_side:
        arrays, compared = side_by_side
        yield from _listed(arrays, first_index(arrays, case.pass_name), compared.both, "in two lists of the row")


def disordered(case: Case) -> Iterator[Violation]:
    """Rows that do not ascend, where the last block is ragged."""
    problem, block = case.problem, case.sparse_block
    if block is None or case.pass_name == BACKWARD or problem.seqlen_k % block[1] == 0:
        return
    for arrays, stem, found in surveys(case):
        fault = f"out of order; {problem.seqlen_k} keys end inside block {problem.seqlen_k // block[1]}"
        yield from _listed(arrays, f"{stem}_idx", found.disordered, fault, advice="sort each row")


def coarser_than_stated(case: Case) -> Iterator[Violation]:
    """Lists that never reach the second half of the blocks: they are likely those of a larger block size."""
    blocks = width_of(case)
    found = list(surveys(case))
    highest = max((each.highest for _, _, each in found), default=-1)
    if blocks and found and highest >= 0 and 2 * (highest + 1) <= blocks and case.sparse_block:
        arrays, stem, _ = found[0]
        message = f"names no block above {highest} of {blocks}, as if its blocks were larger than {case.sparse_block}"
        yield _fault(arrays, f"{stem}_idx", message, "state the sparse_block that the arrays were built for")


def not_transposed(case: Case) -> Iterator[Violation]:
    """The passes list different blocks."""
    arrays, one, other = arrays_of(case), *(block_of(case, name) for name in (FORWARD, BACKWARD))
    if arrays is None or case.pass_name != case.passes[0] or one is None or (other or one) != one:
        return
    if not (sound(case, FORWARD) and sound(case, BACKWARD)):
        return
    from attnctl_kernels.block_arrays.heads import against_backward  # noqa: PLC0415 - NumPy

    problem = case.problem
    blocks = blocks_in(problem.seqlen_q, one[0]), blocks_in(problem.seqlen_k, one[1])
    key = (BACKWARD, *blocks)
    if key not in arrays.known:
        arrays.known[key] = against_backward(arrays, *blocks)
    for places, has, lacks in zip(arrays.known[key], (FORWARD, BACKWARD), (BACKWARD, FORWARD), strict=True):
        yield from _listed(arrays, "", places, f"in the {has} lists and not in the {lacks} lists")


def not_the_mask(case: Case) -> Iterator[Violation]:
    """Blocks that the mask sees and no list has, and the other way round. A dense mask is compared with nothing."""
    side_by_side = heads(case)
    if side_by_side is None:
        return
    arrays, found = side_by_side
    pattern = case.problem.mask.pattern
    of_pass = "" if case.pass_name == FORWARD else " in the backward lists"
    yield from _listed(arrays, "", found.missing, f"seen by mask {pattern} and not listed{of_pass}")
    yield from _listed(arrays, "", found.extra, f"listed{of_pass}, and mask {pattern} sees nothing of them")
    yield from _listed(arrays, "", found.not_full, f"listed as full{of_pass}, and mask {pattern} sees them in part")


def stated_otherwise(case: Case) -> Iterator[Violation]:
    """Facts of the profile that the file contradicts."""
    arrays = arrays_of(case)
    if arrays and case.layout and case.pass_name == case.passes[0]:
        for name, value in arrays.facts().items():
            stated = getattr(case.layout, name)
            elsewhere = name == "backward_arrays" and stated and not value  # another file may hold them
            if stated != value and not elsewhere:
                message = f"{name} is {spelled(stated)}, and {arrays.name} has {spelled(value)}"
                yield Violation(f"layout.{name}", message, (Fix(f"layout.{name}", value),))


def spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fault(arrays: BlockArrays, name: str, fault: str, advice: str, fact: str = "") -> Violation:
    """About an array, or the fact about it that a profile may state."""
    return Violation(f"layout.{fact or name}", f"{arrays.name}: {name} {fault}", advice=advice)


def _listed(arrays: BlockArrays, name: str, places: Places, fault: str, advice: str = REBUILD) -> Iterator[Violation]:
    if places.count:
        noun = "count" if name.endswith("cnt") else "block"
        more = f" and {places.count - len(places.first)} more" if places.count > len(places.first) else ""
        subject = f"{name} " if name else ""
        message = f"{arrays.name}: {subject}{_named(places.first, noun)}{more}: {fault}"
        yield Violation(f"layout.{name}" if name else FILE, message, advice=advice)


def _named(places: Sequence[Place], noun: str) -> str:
    return "; ".join(f"batch {batch}, head {head}, row {row}, {noun} {last}" for batch, head, row, last in places)
