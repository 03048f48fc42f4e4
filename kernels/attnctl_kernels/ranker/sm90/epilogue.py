"""From sums to results: what is left to do for a tile once its keys have been seen."""

from typing import Any

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.nvgpu import warp

from attnctl_kernels.ranker.sm90 import fragments
from attnctl_kernels.ranker.sm90.traits import ForwardTraits


@cute.jit
def close(
    t: ForwardTraits, per_row: Any, results: Any, scale: Float32, scale_log2: Float32, row: Int32, bounds: Any
):  # fmt: skip
    """What a tile's last product need not be awaited for: LSE, weight of the own key, and what rows are multiplied by.

    No branch: behind one, ptxas would wait for every product of the kernel.
    """
    own_score, row_max, row_sum, _, _ = per_row
    inverse, own_weight, lse = results
    h_lo, h_hi, c_lo, c_hi = bounds
    for r in cutlass.range_constexpr(2):
        here = row + 8 * r
        total = cute.arch.warp_reduction_sum(row_sum[r], threads_in_group=4)
        seen = total != 0.0
        if cutlass.const_expr(t.diagonal):
            seen = seen and ((h_lo <= here and here < h_hi) or (c_lo <= here and here < c_hi))
            own_weight[r] = cute.math.exp2((own_score[r] - row_max[r]) * scale_log2, fastmath=True)
        reciprocal, logarithm = cute.arch.rcp_approx(total), cute.math.log(total, fastmath=True)
        inverse[r] = reciprocal if seen else Float32(0.0)
        lse[r] = row_max[r] * scale + logarithm if seen else -Float32.inf


@cute.jit
def finish(
    t: ForwardTraits, mLSE: cute.Tensor, num_rows: Int32, mma_pv: cute.TiledMma, O: cute.Tensor, sO: cute.Tensor,
    results: Any, tile: Any, has_candidates: cutlass.Boolean, own_row: Int32, thread: Int32,
):  # fmt: skip
    """Write the LSE; add the values on the diagonal, divide by the row sums, and put the output into shared memory."""
    row, head, batch, end = tile
    inverse, own_weight, lse = results
    for r in cutlass.range_constexpr(2):
        here = row + own_row + 8 * r
        if thread % 4 == 0 and here < cutlass.min(end, num_rows):
            mLSE[batch, head, here] = lse[r]
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
