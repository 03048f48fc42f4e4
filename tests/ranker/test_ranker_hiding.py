"""What a consumer hides of its scores: the function of the device, run on the CPU for every thread of a warp group."""

import numpy as np
import pytest

pytest.importorskip("cutlass")
from attnctl_kernels.ranker.sm90 import build  # noqa: I001 - names the arch before cutlass is imported
import cutlass
from cutlass import Float32, Int32, cute, range_constexpr
from cutlass.cute.runtime import from_dlpack

from attnctl_kernels.contract import Mask
from attnctl_kernels.masks import visible
from attnctl_kernels.ranker.config import ROWS, default_config
from attnctl_kernels.ranker.ranges import ranges
from attnctl_kernels.ranker.sm90.consumer import _hide, _limits
from attnctl_kernels.ranker.sm90.schedule import bounds_of, bounds_of_group, visits, visits_of_group

TILE_N = 48
TILE_M = 192
TRAITS = build.forward_traits(64, "bfloat16", default_config(64) | {"tile_m": TILE_M, "tile_n": TILE_N}, ranges=True)
THREADS = 128


@cute.jit
def _blocks(mRanges: cute.Tensor, mOut: cute.Tensor, row: Int32, seqlen: Int32, keys: Int32):
    """Scores of 1 of a tile's groups, with what is hidden of them; ``mOut`` is ``(TILE_M + 1, keys + TILE_N)``.

    The last row of ``mOut`` takes how many blocks come after those of each group: none may be missing.
    """
    tile = row, Int32(0), Int32(0), cutlass.min(row + TILE_M, seqlen)
    seen, blocks, _ = visits(TRAITS, row, tile[3], keys, bounds_of(TRAITS, row, tile[3], Int32(0), seqlen, mRanges))
    for group in range(TILE_M // ROWS):
        mine = bounds_of_group(TRAITS, tile, group, seqlen, mRanges)
        before, count, clipped = visits_of_group(TRAITS, seen, blocks, keys, mine)
        mOut[TILE_M, group] = Float32(blocks - before - count)
        for step in range(count):
            begin = clipped[0] + (blocks - 1 - before - step) * TILE_N
            for thread in range(THREADS):
                scores = cute.make_rmem_tensor(TILE_N // 2, Float32)
                scores.fill(1.0)
                own_row, quad = group * ROWS + thread // 32 * 16 + thread % 32 // 4, thread % 4
                work, shape = (mRanges, None, None), (seqlen, 64, 1, 1)
                limits = _limits(TRAITS, work, row + own_row, quad, Int32(0), shape, clipped)
                _hide(TRAITS, scores, begin, clipped, limits)
                for i in range_constexpr(TILE_N // 2):
                    mOut[own_row + 8 * (i // 2 % 2), begin + 8 * (i // 4) + 2 * quad + i % 2] = scores[i]


def arguments(table, out, *numbers):
    tensors = [from_dlpack(x).mark_layout_dynamic() for x in (table, out)]
    return *tensors, *map(Int32, numbers)


@pytest.fixture(scope="module")
def blocks():
    return cute.compile(
        _blocks, *arguments(np.zeros((1, 2, 2), np.int32), np.zeros((TILE_M + 1, 9), np.float32), 0, 2, 2)
    )


@pytest.mark.parametrize(
    ("mask", "seqlen", "keys"),
    [
        (Mask(pattern="dense"), 100, 130),
        (Mask(pattern="causal"), 200, 200),
        (Mask(pattern="causal"), 150, 90),
        (Mask(pattern="sliding_window", window=70), 300, 300),
        (Mask(pattern="sliding_window", window=1), 100, 333),
        (Mask(pattern="document", document_len=37), 200, 200),
        (Mask(pattern="document", document_len=90, causal=True), 250, 250),
        (Mask(pattern="prefix_lm", prefix_len=55), 170, 170),
    ],
    ids=str,
)
def test_every_element_is_as_the_mask_says(blocks, mask, seqlen, keys):
    table = ranges(mask, seqlen, keys)[None].copy()  # with the strides that the compiled function goes by
    for row in range(0, seqlen, TILE_M):
        out = np.full((TILE_M + 1, keys + TILE_N), -np.inf, dtype=np.float32)
        blocks(*arguments(table, out, row, seqlen, keys))
        rows = np.arange(row, min(row + TILE_M, seqlen))
        wanted = visible(mask, rows[:, None], np.arange(keys), seqlen, keys)
        found = out[: len(rows)] == 1.0
        assert (found[:, :keys] == wanted).all()
        assert not found[:, keys:].any()
        assert (out[TILE_M, :3] >= 0).all()
