"""From sums to results: what is left to do for a tile once its keys have been seen."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import warp

from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.traits import ForwardTraits


@cute.jit
def finish(
    t: ForwardTraits, mLSE: cute.Tensor, shape: Any, mma_pv: cute.TiledMma, O: cute.Tensor, sO: cute.Tensor,
    own_score: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, scale: Float32, scale_log2: Float32,
    tile: Any, bounds: Any, has_candidates: cutlass.Boolean, own_row: Int32, thread: Int32,
):  # fmt: skip
    """Add the values on the diagonal, divide by the row sums, and write the LSE and, to shared memory, the output."""
    row, head, batch, end = tile
    end = cutlass.min(end, shape[0])
    h_lo, h_hi, c_lo, c_hi = bounds
    inverse, own_weight = (cute.make_rmem_tensor(2, Float32) for _ in range(2))
    for r in cutlass.range_constexpr(2):
        here = row + own_row + 8 * r
        total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
        if cutlass.const_expr(t.diagonal):
            seen = (h_lo <= here and here < h_hi) or (c_lo <= here and here < c_hi)
            seen = seen and total != 0.0
        else:
            seen = total != 0.0
        reciprocal, logarithm = cute.arch.rcp_approx(total), cute.math.log(total, fastmath=True)
        inverse[r] = reciprocal if seen else Float32(0.0)
        if cutlass.const_expr(t.diagonal):
            own_weight[r] = cute.math.exp2((own_score[r] - row_max[r]) * scale_log2, fastmath=True)
        lse = row_max[r] * scale + logarithm if seen else -Float32.inf
        if thread % 4 == 0 and here < end:
            mLSE[batch, head, here] = lse
    if cutlass.const_expr(t.diagonal):
        if has_candidates:
            rows = cute.make_rmem_tensor(O.shape, t.dtype)
            load = _matrices(t, warp.LdMatrix8x8x16bOp, mma_pv, thread)
            cute.copy(load, load.partition_S(sO), load.retile(rows))
            fragments.add_rows(O, own_weight, rows)
            cute.arch.sync_warp()  # a warp writes the rows that it has read, though not each thread its own
    rO = cute.make_rmem_tensor(O.shape, t.dtype)
    fragments.scale_and_round(O, inverse, rO)
    store = _matrices(t, warp.StMatrix8x8x16bOp, mma_pv, thread)
    cute.copy(store, store.retile(rO), store.partition_D(sO))
    cute.arch.fence_view_async_shared()


def _matrices(t: ForwardTraits, operation: Any, mma: cute.TiledMma, thread: Int32) -> Any:
    """A thread's part in copying an accumulator, by ldmatrix or stmatrix."""
    atom = cute.make_copy_atom(operation(transpose=False, num_matrices=4), t.dtype)
    return cute.make_tiled_copy_C(atom, mma).get_slice(thread)
