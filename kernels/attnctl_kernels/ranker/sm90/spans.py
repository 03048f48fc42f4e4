"""Which rows see a key, where each row sees one range of keys: the table of ranges, read the other way.

Neither end of the ranges ever falls from row to row. So the rows that see a key are one range as well, its *span*, and
neither end of the spans falls from key to key. A block of keys is seen by no row before its first key's span, and by
none behind its last key's; by every row that both spans have, each key is.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute

from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits

NEVER = 2**31 - 1


@cute.jit
def find(mRanges: cute.Tensor, batch: Int32, key: Int32, seqlen: Int32):
    """``(begin, end)`` of the rows that see a key.

    From the first whose range ends behind it, to the first whose range begins behind it. Both are sought at once, so
    that their loads are under way together.
    """
    begin, begin_limit, end, end_limit = Int32(0), seqlen, Int32(0), seqlen
    while begin < begin_limit or end < end_limit:
        if begin < begin_limit:
            middle = (begin + begin_limit) // 2
            if mRanges[batch, middle, 1] > key:
                begin_limit = middle
            else:
                begin = middle + 1
        if end < end_limit:
            middle = (end + end_limit) // 2
            if mRanges[batch, middle, 0] > key:
                end_limit = middle
            else:
                end = middle + 1
    return begin, end


@cute.jit
def at(mSpans: cute.Tensor, batch: Int32, key: Int32, keys: Int32):
    """A key's span; behind the last key, of one that no row sees."""
    begin, end = Int32(NEVER), Int32(0)
    if key < keys:
        begin, end = mSpans[batch, key, 0], mSpans[batch, key, 1]
    return begin, end


@cute.jit
def key_block(t: BackwardTraits, index: Int32, num_heads: Int32, keys: Int32):
    """``(first key, head, batch)`` of a block. Blocks of one head follow each other, as with bounds."""
    blocks = cute.ceil_div(keys, t.tile_n)
    heads_before = index // blocks
    batch = heads_before // num_heads
    return (index - heads_before * blocks) * t.tile_n, heads_before - batch * num_heads, batch


@cute.jit
def rows_of_block(t: BackwardTraits, mSpans: cute.Tensor, batch: Int32, first_key: Int32, keys: Int32, seqlen: Int32):
    """The rows that a block of keys walks, as ``walk.ranges`` has them: whole tiles, counted from row 0."""
    begin, _ = at(mSpans, batch, first_key, keys)
    _, end = at(mSpans, batch, cutlass.min(first_key + t.tile_n, keys) - 1, keys)
    # Whatever the table holds, no row is walked that there is not.
    begin, end = cutlass.min(begin, seqlen), cutlass.min(end, seqlen)
    begin = begin // t.tile_m * t.tile_m
    return begin, cutlass.max(begin, end), Int32(0), Int32(0)


@cute.jit
def seen_by(mSpans: cute.Tensor, block: Any, own_row: Int32, quad: Int32, keys: Int32, seqlen: Int32):
    """The rows that see all of a warp group's 64 keys; and the spans of a thread's two, from its first column."""
    first_key, batch = block
    all_begin, _ = at(mSpans, batch, first_key + ROWS - 1, keys)
    _, all_end = at(mSpans, batch, first_key, keys)
    if all_end == seqlen:
        all_end = Int32(NEVER)  # slots behind the last row weigh nothing anyway
    spans = [at(mSpans, batch, first_key + own_row + 8 * r, keys) for r in range(2)]
    begins, ends = ([span[side] - 2 * quad for span in spans] for side in range(2))
    return (all_begin, all_end), (begins, ends)


@cute.jit
def hide(weights: cute.Tensor, row: Int32, seen: Any):
    """Set to 0 what rows do not see of a warp group's keys, of a transposed fragment whose first column is ``row``."""
    (all_begin, all_end), limits = seen
    if row < all_begin or row + ROWS > all_end:
        begins, ends = ([each - row for each in side] for side in limits)
        w = fragments.flat(weights)
        for i in cutlass.range_constexpr(cute.size(w)):
            r, column = i // 2 % 2, 8 * (i // 4) + i % 2
            w[i] = w[i] if begins[r] <= column and column < ends[r] else Float32(0.0)
