"""The backward pass for sm_90a: dQ, dK and dV of history/candidate attention, in three kernels."""

import math
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from attnctl_kernels.ranker.backward_config import DQ_BUFFERS, SCORE_BUFFERS, barriers
from attnctl_kernels.ranker.config import REGISTERS, ROWS
from attnctl_kernels.ranker.sm90 import backward_rows, spans, sums, tma, walk
from attnctl_kernels.ranker.sm90.backward_consumer import consume
from attnctl_kernels.ranker.sm90.backward_producer import load
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits
from attnctl_kernels.ranker.sm90.consumer import WARP_GROUP
from attnctl_kernels.ranker.sm90.ring import Ring


class Backward:
    def __init__(self, traits: BackwardTraits) -> None:
        self.traits = traits

    @cute.jit
    def __call__(
        self,
        mQ: cute.Tensor,  # (batch_size, seqlen, num_heads_q, head_dim)
        mK: cute.Tensor,  # (batch_size, seqlen, num_heads_kv, head_dim)
        mV: cute.Tensor,
        mO: cute.Tensor,
        mdO: cute.Tensor,
        mLSE: cute.Tensor,  # (batch_size, num_heads_q, seqlen) float32
        mdLSE: cute.Tensor | None,
        mdQ: cute.Tensor,
        mdK: cute.Tensor,
        mdV: cute.Tensor,
        mSums: cute.Tensor,  # (batch_size, num_heads_q, tiles * tile_m, width) float32: scratch
        mStats: cute.Tensor,  # (batch_size, num_heads_q, tiles, 2 * tile_m) float32: scratch
        mBounds: cute.Tensor,  # (batch_size, 4) int32; with ranges (batch_size, seqlen_q, 2)
        mSpans: cute.Tensor | None,  # with ranges (batch_size, seqlen_k, 2) int32: scratch
        softmax_scale: Float32,
        logit_cap: Float32 | None,
        stream: cuda.CUstream,
    ):
        t = self.traits
        batch_size, seqlen, num_heads_q, _ = mQ.shape
        _, seqlen_k, num_heads_kv, _ = mK.shape
        mQ, mK, mV, mO, mdO, mdQ, mdK, mdV = (_aligned(x) for x in (mQ, mK, mV, mO, mdO, mdQ, mdK, mdV))
        logit_scale, before_cap = softmax_scale, None
        if cutlass.const_expr(t.capped):
            logit_scale, before_cap = logit_cap, softmax_scale / logit_cap
        scales = softmax_scale, Float32(logit_scale * math.log2(math.e)), before_cap
        per_block = backward_rows.rows_per_block(t)
        chunks = cute.ceil_div(seqlen + 2 * t.tile_m, per_block)  # as many rows as there are slots, too
        rows = mQ, mK, mV, mO, mdO, mLSE, mdLSE, mdK, mdV, mSums, mStats, mBounds, scales, chunks
        launch = {
            "grid": [chunks * num_heads_kv * batch_size, 1, 1],
            "block": [backward_rows.THREADS, 1, 1],
            "stream": stream,
        }
        if cutlass.const_expr(t.ranges):
            key_chunks = cute.ceil_div(seqlen_k, backward_rows.THREADS)
            blocks = chunks * num_heads_q * batch_size + key_chunks * batch_size
            self.prepare_ranges(mO, mdO, mLSE, mdLSE, mSums, mStats, mBounds, mSpans, chunks, key_chunks).launch(
                **launch | {"grid": [blocks, 1, 1]}
            )
        elif num_heads_q == num_heads_kv:
            self.prepare(*rows, False).launch(**launch)
        else:
            self.prepare(*rows, True).launch(**launch)

        part_layout, scores_layout = tma.swizzled(t.dtype, t.lines, t.head_dim), tma.swizzled(t.dtype, (ROWS, ROWS))
        loads, stores = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()

        def atom(copy: Any, x: cute.Tensor) -> Any:
            return cpasync.make_tiled_tma_atom(copy, tma.ending_anywhere(tma.rows_first(x), ROWS), part_layout, t.part)

        (tma_q, gQ), (tma_do, gdO), (tma_k, gK), (tma_v, gV) = (atom(loads, x) for x in (mQ, mdO, mK, mV))
        (tma_dk, gdK), (tma_dv, gdV) = (atom(stores, x) for x in (mdK, mdV))
        tile_stats = 2 * t.tile_m
        # Not by a plain bulk copy, though it would do: racecheck takes its writes for those of the thread that asks.
        tma_stats, gStats = cpasync.make_tiled_tma_atom(
            loads, cute.make_tensor(mStats.iterator, cute.select(mStats.layout, mode=[3, 2, 1, 0])),
            cute.make_layout(tile_stats), (tile_stats,),
        )  # fmt: skip
        k_major, mn_major = OperandMajorMode.K, OperandMajorMode.MN
        source = warpgroup.OperandSource.RMEM if t.keys_in_registers else None
        mma_s = _mma(t, k_major, k_major, (ROWS, ROWS), source)
        mma_dkv = _mma(t, k_major, mn_major, t.gradient, warpgroup.OperandSource.RMEM)
        mma_dq = _mma(t, mn_major, mn_major, t.piece)
        self.main(
            tma_q, gQ, tma_do, gdO, tma_k, gK, tma_v, gV, tma_stats, gStats, tma_dk, gdK, tma_dv, gdV, mSums, mBounds,
            mSpans, scales, seqlen, seqlen_k, num_heads_q // num_heads_kv, num_heads_kv, batch_size,
            mma_s, mma_dkv, mma_dq, part_layout, scores_layout,
        ).launch(
            grid=[cute.ceil_div(seqlen_k, t.tile_n) * num_heads_kv * batch_size, 1, 1],
            block=[WARP_GROUP * (t.warp_groups + 1), 1, 1],
            stream=stream,
            min_blocks_per_mp=1,
            use_pdl=True,
        )  # fmt: skip

        chunks = cute.ceil_div(seqlen, per_block)
        self.finish(mSums, mdQ, mBounds, softmax_scale, chunks).launch(
            grid=[chunks * num_heads_q * batch_size, 1, 1],
            block=[backward_rows.THREADS, 1, 1],
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def prepare(
        self, mQ: cute.Tensor, mK: cute.Tensor, mV: cute.Tensor, mO: cute.Tensor, mdO: cute.Tensor, mLSE: cute.Tensor,
        mdLSE: cute.Tensor | None, mdK: cute.Tensor, mdV: cute.Tensor, mSums: cute.Tensor, mStats: cute.Tensor,
        mBounds: cute.Tensor, scales: Any, num_chunks: Int32, grouped: cutlass.Constexpr,
    ):  # fmt: skip
        cute.arch.griddepcontrol_launch_dependents()
        backward_rows.prepare(
            self.traits, mQ, mK, mV, mO, mdO, mLSE, mdLSE, mdK, mdV, mSums, mStats, mBounds, scales, num_chunks, grouped
        )

    @cute.kernel
    def prepare_ranges(
        self, mO: cute.Tensor, mdO: cute.Tensor, mLSE: cute.Tensor, mdLSE: cute.Tensor | None,
        mSums: cute.Tensor, mStats: cute.Tensor, mRanges: cute.Tensor, mSpans: cute.Tensor, num_chunks: Int32,
        num_key_chunks: Int32,
    ):  # fmt: skip
        cute.arch.griddepcontrol_launch_dependents()
        backward_rows.prepare_ranges(
            self.traits, mO, mdO, mLSE, mdLSE, mSums, mStats, mRanges, mSpans, num_chunks, num_key_chunks
        )

    @cute.kernel
    def finish(self, mSums: cute.Tensor, mdQ: cute.Tensor, mBounds: cute.Tensor, scale: Float32, num_chunks: Int32):
        cute.arch.griddepcontrol_wait()
        backward_rows.finish(self.traits, mSums, mdQ, mBounds, scale, num_chunks)

    @cute.kernel
    def main(
        self, tma_q: cute.CopyAtom, gQ: cute.Tensor, tma_do: cute.CopyAtom, gdO: cute.Tensor,
        tma_k: cute.CopyAtom, gK: cute.Tensor, tma_v: cute.CopyAtom, gV: cute.Tensor,
        tma_stats: cute.CopyAtom, gStats: cute.Tensor,
        tma_dk: cute.CopyAtom, gdK: cute.Tensor, tma_dv: cute.CopyAtom, gdV: cute.Tensor,
        mSums: cute.Tensor, mBounds: cute.Tensor, mSpans: cute.Tensor | None,
        scales: Any, seqlen: Int32, seqlen_k: Int32, group_size: Int32, num_heads_kv: Int32, batch_size: Int32,
        mma_s: cute.TiledMma, mma_dkv: cute.TiledMma, mma_dq: cute.TiledMma,
        part_layout: cute.ComposedLayout, scores_layout: cute.ComposedLayout,
    ):  # fmt: skip
        """A block of keys of one head, and all rows that see it."""
        t = self.traits
        cute.arch.griddepcontrol_launch_dependents()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        index, _, _ = cute.arch.block_idx()
        if cutlass.const_expr(t.ranges):
            first_key, head, batch = spans.key_block(t, index, num_heads_kv, seqlen_k)
        else:
            first_key, head, batch = walk.key_block(t, index, num_heads_kv, batch_size, seqlen, mBounds)
        # Past the last block of keys: the grid is as large as it would be with everything history.
        if batch < batch_size:
            limit, rows = seqlen_k, None
            if cutlass.const_expr(not t.ranges):
                clipped = walk.clip(walk.bounds_of(mBounds, batch), seqlen)
                limit, rows = clipped[1], walk.ranges(clipped)
            block = first_key, head, batch
            if warp_index == 0:
                for each in (tma_q, tma_do, tma_k, tma_v, tma_stats, tma_dk, tma_dv):
                    cpasync.prefetch_descriptor(each)

            storage = SmemAllocator().allocate(self._storage())
            first = storage.barriers.data_ptr()
            kv_ring, ring = Ring(first, 1), Ring(first + 2, t.stages)
            do_ring = None if t.do_stages == t.stages else Ring(first + 2 + 2 * t.stages, t.do_stages)
            if warp_index == 0:
                with cute.arch.elect_one():
                    for each in (kv_ring, ring) if do_ring is None else (kv_ring, ring, do_ring):
                        each.init(4 * t.warp_groups)
                cute.arch.mbarrier_init_fence()
            cute.arch.sync_threads()

            part_elements, square = ROWS * t.head_dim, ROWS * ROWS
            # Of the keys, dQ takes whole pieces: at head_dim 96 they are stored as wide, with 32 columns of anything.
            keys = tma.stacked(part_layout, (t.key_parts, ROWS * t.width))
            wide = tma.stacked(tma.swizzled(t.dtype, t.lines, t.width), (t.key_parts, ROWS * t.width))
            values = tma.stacked(part_layout, (t.key_parts, part_elements))
            queries, gradients = (
                tma.stacked(part_layout, (t.row_parts, part_elements), (stages, t.row_parts * part_elements))
                for stages in (t.stages, t.do_stages)
            )
            scores = tma.stacked(
                scores_layout,
                (t.key_parts, square),
                (t.row_parts, t.key_parts * square),
                (SCORE_BUFFERS, t.tile_n * t.tile_m),
            )
            sK, sKw, sV, sQ, sdO, sdS = (
                x.get_tensor(layout.outer, swizzle=layout.inner)
                for x, layout in (
                    (storage.k, keys), (storage.k, wide), (storage.v, values), (storage.q, queries),
                    (storage.do, gradients), (storage.ds, scores),
                )
            )  # fmt: skip
            of_warp = sums.floats(t.piece[1])
            sdQ = storage.dq.get_tensor(cute.make_layout((of_warp, sums.WARPS, t.warp_groups, DQ_BUFFERS)))
            sStats = storage.stats.get_tensor(cute.make_layout((2 * t.tile_m, t.stages)))

            registers, producer_registers = REGISTERS[t.warp_groups]
            if warp_index < 4:
                cute.arch.setmaxregister_decrease(producer_registers)
                if warp_index == 0:
                    atoms, tensors = (tma_q, tma_do, tma_stats, tma_k, tma_v), (gQ, gdO, gStats, gK, gV)
                    buffers = sQ, sdO, sStats, sK, sV
                    load(t, atoms, tensors, buffers, (kv_ring, ring, do_ring), block, rows, limit, group_size, mSpans)
            else:
                cute.arch.setmaxregister_increase(registers)
                buffers, stores = (sQ, sdO, sStats, (sK, sKw), sV, sdS, sdQ), ((tma_dk, gdK), (tma_dv, gdV))
                consume(
                    t, mSums, buffers, (kv_ring, ring, do_ring), stores, block, rows, limit, group_size, scales,
                    (mma_s, mma_dkv, mma_dq), mSpans, seqlen,
                )  # fmt: skip
        else:
            cute.arch.griddepcontrol_wait()  # as the others do: when this kernel ends, the first one has

    def _storage(self) -> Any:
        """In this order nothing is padded: buffers are multiples of 1024 bytes, barriers come last."""
        t = self.traits

        def buffer(elements: int) -> Any:
            return cute.struct.Align[cute.struct.MemRange[t.dtype, elements], 1024]

        @cute.struct
        class Storage:
            k: buffer(t.tile_n * t.width)
            v: buffer(t.tile_n * t.head_dim)
            q: buffer(t.stages * t.tile_m * t.head_dim)
            do: buffer(t.do_stages * t.tile_m * t.head_dim)
            ds: buffer(SCORE_BUFFERS * t.tile_m * t.tile_n)
            dq: cute.struct.MemRange[Float32, DQ_BUFFERS * t.tile_n * ROWS]
            stats: cute.struct.MemRange[Float32, t.stages * 2 * t.tile_m]
            barriers: cute.struct.MemRange[Int64, barriers(t.stages, t.do_stages)]

        return Storage


def _aligned(x: cute.Tensor) -> cute.Tensor:
    strides = tuple(s if isinstance(s, int) else cute.assume(s, divby=8) for s in x.stride)
    return cute.make_tensor(x.iterator, cute.make_layout(x.shape, stride=strides))


def _mma(t: BackwardTraits, a_major: Any, b_major: Any, tile: tuple[int, int], source: Any = None) -> cute.TiledMma:
    return hopper_helpers.make_trivial_tiled_mma(
        t.dtype, t.dtype, a_major, b_major, Float32, (1, 1, 1), tile, source or warpgroup.OperandSource.SMEM
    )
