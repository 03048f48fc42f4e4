"""Run the kernel's own schedule on the CPU: the functions that the device runs, compiled for the host."""

import numpy as np
from cutlass import Constexpr, Int32, const_expr, cute, range_constexpr
from cutlass.cute.runtime import from_dlpack

from attnctl_kernels.ranker.sm90 import build
from attnctl_kernels.ranker.sm90.order import put_in_order
from attnctl_kernels.ranker.sm90.schedule import deal, locate, plan, visits

FIELDS = ("row", "head", "batch", "end", "lo", "hi", "third", "fourth", "blocks", "candidates")
MOST_GROUPS = 3


@cute.jit
def _walk(  # noqa: PLR0917 - a compiled function has no keywords
    t: Constexpr, mBounds: cute.Tensor, mOrder: cute.Tensor | None, mOut: cute.Tensor, seqlen: Int32, keys: Int32,
    num_heads: Int32, num_batches: Int32, num_ctas: Int32,
):  # fmt: skip
    shape = (seqlen, t.head_dim, num_heads, num_batches)
    tiles_m = cute.ceil_div(seqlen, t.tile_m)
    if const_expr(t.longest_first):
        for index in range(tiles_m * num_batches):
            put_in_order(t, index, mBounds, mOrder, shape, keys)
    pieces, cut = deal(t, tiles_m * num_heads * num_batches, num_ctas)
    mOut[0, 0] = pieces
    for index in range(pieces):
        tile, bounds = locate(t, index, shape, (mBounds, mOrder, cut))
        seen, blocks, candidates = visits(t, tile[0], tile[3], keys, bounds)
        values = (*tile, *seen, blocks, Int32(candidates))
        for i in range_constexpr(len(FIELDS)):
            mOut[index + 1, i] = values[i]
        for group in range_constexpr(t.warp_groups):
            _, (part, _, _) = plan(t, index, shape, keys, (mBounds, mOrder, cut), Int32(group))
            mOut[index + 1, len(FIELDS) + 2 * group], mOut[index + 1, len(FIELDS) + 2 * group + 1] = part[:2]


class Walk:
    """The schedule of one kernel: ``walk(bounds, (seqlen, keys, heads, ctas))`` gives a dict of FIELDS per piece, and
    of each warp group the ``parts``: how many blocks come before its own, and how many these are."""

    def __init__(self, *, ranges=False, **changes):
        config = {"tile_m": 192, "tile_n": 80, "stages": 2, "turns": True, "persistent": True, "balanced": False}
        self.traits = build.forward_traits(128, "bfloat16", {**config, "schedule": "linear", **changes}, ranges=ranges)
        bounds = np.zeros((1, 1, 2) if ranges else (1, 4), dtype=np.int32)
        self._run = cute.compile(_walk, *self._arguments(bounds, (1, 1, 1, 1))[0])

    def __call__(self, bounds, sizes):
        (_, *arguments), out = self._arguments(np.asarray(bounds, dtype=np.int32), sizes)
        self._run(*arguments)
        fields = len(FIELDS)
        parts = [slice(fields + 2 * group, fields + 2 * group + 2) for group in range(self.traits.warp_groups)]
        return [
            dict(zip(FIELDS, row[:fields], strict=True)) | {"parts": [tuple(row[each]) for each in parts]}
            for row in out[1 : 1 + out[0, 0]].tolist()
        ]

    def _arguments(self, bounds, sizes):
        seqlen, keys, num_heads, num_ctas = sizes
        tiles = -(-seqlen // self.traits.tile_m) * num_heads * len(bounds)
        order = np.full(tiles, -1, dtype=np.int32) if self.traits.longest_first else None
        out = np.full((3 * tiles + 1, len(FIELDS) + 2 * MOST_GROUPS), -1, dtype=np.int32)
        tensors = [None if x is None else from_dlpack(x).mark_layout_dynamic() for x in (bounds, order, out)]
        numbers = (Int32(each) for each in (seqlen, keys, num_heads, len(bounds), num_ctas))
        return (self.traits, *tensors, *numbers), out
