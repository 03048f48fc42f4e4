"""The consumer warp groups of the backward kernel: each has 64 keys, and dK and dV of them in registers.

Scores are taken transposed, ``S = K Q^T``: a warp group's weights are then an operand of dV and dK as they are, in
registers. Only dS goes through shared memory, to meet the keys of all groups in dQ.
"""

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import warp, warpgroup
from cutlass.cutlass_dsl import dsl_user_op

from attnctl_kernels.ranker.backward_config import SCORE_BUFFERS
from attnctl_kernels.ranker.config import ROWS
from attnctl_kernels.ranker.sm90 import fragments, tma, walk
from attnctl_kernels.ranker.sm90.backward_producer import box_at
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits
from attnctl_kernels.ranker.sm90.consumer import WARP_GROUP
from attnctl_kernels.ranker.sm90.ring import Cursor

ALL_GROUPS = 1  # named barriers: of all consumers, and behind it one per group
OWN_GROUP = 2


@cute.jit
def consume(
    t: BackwardTraits, mSums: cute.Tensor, buffers: Any, rings: Any, stores: Any, block: Any, rows: Any, h_hi: Int32,
    group_size: Int32, scale: Float32, scale_log2: Float32, mmas: Any,
):  # fmt: skip
    sQ, sdO, sStats, sK, sV, sdS = buffers
    kv_ring, ring = rings
    first_key, kv_head, batch = block
    mma_s, mma_dkv, mma_dq = mmas
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // WARP_GROUP) - 1
    thread = thread % WARP_GROUP
    quad = thread % 4
    own_row = (thread // 32) * 16 + (thread % 32) // 4

    tK, tV = (mma_s.make_fragment_A(mma_s.get_slice(0).partition_A(x))[None, None, None, group] for x in (sK, sV))
    tQ, tdO = (mma_s.make_fragment_B(mma_s.get_slice(0).partition_B(x)) for x in (sQ, sdO))
    tQt, tdOt = (mma_dkv.make_fragment_B(mma_dkv.get_slice(0).partition_B(fragments.transposed(x))) for x in (sQ, sdO))
    tdS = mma_dq.make_fragment_A(mma_dq.get_slice(0).partition_A(fragments.transposed(sdS)))

    score_shape = mma_s.get_slice(thread).partition_shape_C((ROWS, ROWS))
    S, dP, dQ = (cute.make_rmem_tensor(score_shape, Float32) for _ in range(3))
    thr_dkv = mma_dkv.get_slice(thread)
    P, dS = (mma_dkv.make_fragment_A(thr_dkv.partition_shape_A((ROWS, ROWS))) for _ in range(2))
    dK, dV = (cute.make_rmem_tensor(thr_dkv.partition_shape_C(t.part), Float32) for _ in range(2))
    dK.fill(0.0)
    dV.fill(0.0)
    copy_dS = _stmatrix(t, mma_s).get_slice(thread)

    # Keys behind the history are zeros in shared memory; their weights are hidden, so that dS of them is 0 too.
    seen = tuple(first_key + group * ROWS + own_row + 8 * r < h_hi for r in range(2))
    _, num_tiles = walk.count_tiles(t, rows)
    kv_ring.wait(Cursor.start(1))
    stage, buffer = Cursor.start(t.stages), Cursor.start(SCORE_BUFFERS)
    for step in cutlass.range(group_size * num_tiles, unroll=1):
        ring.wait(stage)
        for part in cutlass.range_constexpr(t.row_parts):
            at = (None, None, None, part, stage.index)
            fragments.multiply(mma_s, S, tK, tQ[at], False)
            fragments.multiply(mma_s, dP, tV, tdO[at], False)
            lse = _stats(sStats[None, stage.index], part * ROWS + 2 * quad)
            warpgroup.wait_group(1)
            weigh(S, lse, seen, scale_log2)
            fragments.round_to(S, P)
            fragments.multiply(mma_dkv, dV, P, tdOt[at], True)
            delta = _stats(sStats[None, stage.index], t.tile_m + part * ROWS + 2 * quad)
            warpgroup.wait_group(1)
            differentiate(S, dP, delta)
            fragments.round_to(dP, dS)
            fragments.multiply(mma_dkv, dK, dS, tQt[at], True)
            own_dS = sdS[None, None, group, part, buffer.index]
            cute.copy(copy_dS, copy_dS.retile(dS), copy_dS.partition_D(own_dS))
        cute.arch.fence_view_async_shared()
        # With two buffers one barrier a step is enough: whoever writes this buffer again has passed the next barrier,
        # where every group arrives with its products of this step done.
        cute.arch.barrier(barrier_id=ALL_GROUPS, number_of_threads=WARP_GROUP * t.warp_groups)
        member = step // num_tiles
        head, tile = kv_head * group_size + member, step - member * num_tiles
        for n in cutlass.range_constexpr(t.squares):
            row_part, column_part = t.square(group, n)
            columns = cute.local_tile(fragments.transposed(sK), (ROWS, ROWS), (column_part, 0, None))
            tKt = mma_dq.make_fragment_B(mma_dq.get_slice(0).partition_B(columns))
            for key_part in cutlass.range_constexpr(t.warp_groups):
                fragments.multiply(
                    mma_dq, dQ, tdS[None, None, None, key_part, row_part, buffer.index],
                    tKt[None, None, None, key_part], key_part > 0,
                )  # fmt: skip
            warpgroup.wait_group(0)
            if cutlass.const_expr(n == t.squares - 1):
                ring.release(stage)
            row = tile * t.tile_m + row_part * ROWS + own_row
            add_dq(dQ, mSums[batch, head, None, None], row, column_part * ROWS + 4 * quad)
        stage.advance()
        buffer.advance()

    # All products with the keys are done, whose place dK takes.
    cute.arch.barrier(barrier_id=ALL_GROUPS, number_of_threads=WARP_GROUP * t.warp_groups)
    dk = fragments.flat(dK)
    for i in cutlass.range_constexpr(cute.size(dk)):
        dk[i] = dk[i] * scale
    copy = _stmatrix(t, mma_dkv).get_slice(thread)
    for gradient, target in ((dV, sV), (dK, sK)):
        rounded = cute.make_rmem_tensor(gradient.shape, t.dtype)
        fragments.round_to(gradient, rounded)
        cute.copy(copy, copy.retile(rounded), copy.partition_D(target[None, None, group]))
    cute.arch.fence_view_async_shared()
    cute.arch.barrier(barrier_id=OWN_GROUP + group, number_of_threads=WARP_GROUP)
    begin = first_key + group * ROWS
    if thread < 32 and begin < h_hi:
        (tma_dk, gdK), (tma_dv, gdV) = stores
        at = box_at(begin, h_hi, kv_head, batch)
        tma.store(tma_dv, sV[None, None, group], gdV, at, t.part)
        tma.store(tma_dk, sK[None, None, group], gdK, at, t.part)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)


def _stats(s: cute.Tensor, first: Int32) -> cute.Tensor:
    """LSE or delta of the columns that a thread has of a transposed score fragment: pairs, 8 apart."""
    part = cute.domain_offset((first,), s)
    pairs = cute.make_tensor(part.iterator, cute.make_layout((2, ROWS // 8), stride=(1, 8)))
    values = cute.make_rmem_tensor(pairs.shape, Float32)
    cute.autovec_copy(pairs, values)
    return fragments.flat(values)


def weigh(S: cute.Tensor, lse: cute.Tensor, seen: Any, scale_log2: Float32) -> None:
    """Scores to weights, in place; 0 for keys that are not seen."""
    s = fragments.flat(S)
    for i in range(cute.size(s)):
        exponent = s[i] * scale_log2 - lse[2 * (i // 4) + i % 2]
        hidden = cutlass.select_(seen[i // 2 % 2], exponent, -Float32.inf)
        s[i] = cute.math.exp2(hidden, fastmath=True)


def differentiate(P: cute.Tensor, dP: cute.Tensor, delta: cute.Tensor) -> None:
    """The gradient of the scores, dS, in place of dP."""
    p, dp = fragments.flat(P), fragments.flat(dP)
    for i in range(cute.size(p)):
        dp[i] = p[i] * (dp[i] - delta[2 * (i // 4) + i % 2])


def add_dq(dQ: cute.Tensor, sums: cute.Tensor, row: Int32, column: Int32) -> None:
    """Add a square of dQ to its sums in memory, whose columns are as ``backward_rows.mix`` has them."""
    dq = fragments.flat(dQ)
    for r in range(2):
        for j in range(0, cute.size(dq) // 4, 2):
            i = 4 * j + 2 * r
            target = sums.iterator + cute.crd2idx((row + 8 * r, column + 8 * j), sums.layout)
            _add_four(target.toint(), *(dq[i + n] for n in (0, 1, 4, 5)))


def _stmatrix(t: BackwardTraits, mma: cute.TiledMma) -> cute.TiledCopy:
    atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), t.dtype)
    return cute.make_tiled_copy_C(atom, mma)


@dsl_user_op
def _add_four(
    address: Int64, a: Float32, b: Float32, c: Float32, d: Float32, *, loc: Any = None, ip: Any = None
) -> None:
    values = [Float32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c, d)]
    llvm.inline_asm(
        None, [Int64(address).ir_value(loc=loc, ip=ip), *values], "red.global.add.v4.f32 [$0], {$1, $2, $3, $4};",
        "l,f,f,f,f", has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip,
    )  # fmt: skip
