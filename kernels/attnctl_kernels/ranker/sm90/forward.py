"""The forward kernel for sm_90a: history/candidate attention with bounds per batch row."""

import math
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from attnctl_kernels.ranker.config import REGISTERS, ROWS
from attnctl_kernels.ranker.sm90 import tma
from attnctl_kernels.ranker.sm90.consumer import consume
from attnctl_kernels.ranker.sm90.order import list_tiles
from attnctl_kernels.ranker.sm90.producer import load_inputs, store_outputs
from attnctl_kernels.ranker.sm90.ring import Ring
from attnctl_kernels.ranker.sm90.schedule import deal
from attnctl_kernels.ranker.sm90.traits import ForwardTraits
from attnctl_kernels.ranker.sm90.turns import WARP_GROUP


class Forward:
    def __init__(self, traits: ForwardTraits) -> None:
        self.traits = traits

    @cute.jit
    def __call__(
        self,
        mQ: cute.Tensor,  # (batch_size, seqlen, num_heads_q, head_dim)
        mK: cute.Tensor,  # (batch_size, seqlen, num_heads_kv, head_dim)
        mV: cute.Tensor,
        mO: cute.Tensor,
        mLSE: cute.Tensor,  # (batch_size, num_heads_q, seqlen) float32
        mBounds: cute.Tensor,  # int32: (batch_size, 4), history begin, end, candidates begin, end; or (.., seqlen, 2)
        mOrder: cute.Tensor | None,  # (tiles,) int32, scratch, where the longest come first
        softmax_scale: Float32,
        logit_cap: Float32 | None,
        num_ctas: Int32,
        stream: cuda.CUstream,
    ):
        t = self.traits
        mQ, mK, mV, mO = (tma.rows_first(x) for x in (mQ, mK, mV, mO))
        tile_layout = tma.swizzled(t.dtype, t.rows)
        ring_layout = tma.swizzled(t.dtype, t.block)
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        atoms = [
            cpasync.make_tiled_tma_atom(load, mQ, tile_layout, t.rows),
            cpasync.make_tiled_tma_atom(load, mK, ring_layout, t.block),
            cpasync.make_tiled_tma_atom(load, tma.ending_anywhere(mV, t.tile_n), ring_layout, t.block),
            cpasync.make_tiled_tma_atom(load, mK, tile_layout, t.rows),
            cpasync.make_tiled_tma_atom(load, mV, tile_layout, t.rows),
            cpasync.make_tiled_tma_atom(store, mO, tile_layout, t.rows),
        ]
        (tma_q, gQ), (tma_k, gK), (tma_v, gV), (tma_dk, gDk), (tma_dv, gDv), (tma_o, gO) = atoms

        mma_qk = hopper_helpers.make_trivial_tiled_mma(
            t.dtype, t.dtype, OperandMajorMode.K, OperandMajorMode.K, Float32, (1, 1, 1), (ROWS, t.tile_n)
        )
        mma_pv = hopper_helpers.make_trivial_tiled_mma(
            t.dtype,
            t.dtype,
            OperandMajorMode.K,
            OperandMajorMode.MN,
            Float32,
            (1, 1, 1),
            (ROWS, t.head_dim),
            warpgroup.OperandSource.RMEM,
        )
        num_tiles = cute.ceil_div(mQ.shape[0], t.tile_m) * mQ.shape[2] * mQ.shape[3]
        if cutlass.const_expr(t.longest_first):
            list_tiles(t, mBounds, mOrder, mQ.shape, mK.shape[0], stream)
        num_tiles, cut = deal(t, num_tiles, num_ctas)
        scale, before_cap = softmax_scale, None
        if cutlass.const_expr(t.capped):
            scale, before_cap = logit_cap, softmax_scale / logit_cap
        grid = num_tiles
        if cutlass.const_expr(t.persistent):
            grid = cutlass.min(num_tiles, num_ctas)
        self.kernel(
            tma_q, gQ, tma_k, gK, tma_v, gV, tma_dk, gDk, tma_dv, gDv, tma_o, gO,
            mLSE, (mBounds, mOrder, cut), scale, Float32(scale * math.log2(math.e)), before_cap,
            num_tiles, mma_qk, mma_pv, tile_layout, ring_layout,
        ).launch(
            grid=[grid, 1, 1],
            block=[WARP_GROUP * (t.warp_groups + 1), 1, 1],
            stream=stream,
            min_blocks_per_mp=1,
        )  # fmt: skip

    @cute.kernel
    def kernel(
        self, tma_q: cute.CopyAtom, gQ: cute.Tensor, tma_k: cute.CopyAtom, gK: cute.Tensor,
        tma_v: cute.CopyAtom, gV: cute.Tensor, tma_dk: cute.CopyAtom, gDk: cute.Tensor,
        tma_dv: cute.CopyAtom, gDv: cute.Tensor, tma_o: cute.CopyAtom, gO: cute.Tensor,
        mLSE: cute.Tensor, work: Any, scale: Float32, scale_log2: Float32, before_cap: Float32 | None,
        num_tiles: Int32, mma_qk: cute.TiledMma, mma_pv: cute.TiledMma,
        tile_layout: cute.ComposedLayout, ring_layout: cute.ComposedLayout,
    ):  # fmt: skip
        t = self.traits
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp_index == 0:
            for atom in (tma_q, tma_k, tma_v, tma_dk, tma_dv, tma_o):
                cpasync.prefetch_descriptor(atom)

        storage = SmemAllocator().allocate(self._storage())
        barriers = storage.barriers.data_ptr()
        sizes = (t.warp_groups, t.warp_groups, t.warp_groups, t.stages)  # of Q, diagonal, output, keys with values
        rings = tuple(Ring(barriers + 2 * sum(sizes[:i]), size) for i, size in enumerate(sizes))
        if warp_index == 0:
            with cute.arch.elect_one():
                for ring in rings[:3]:
                    ring.init(4)  # the warps of the one group that uses a buffer
                rings[3].init(4 * t.warp_groups)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        tiles_layout = tma.stacked(tile_layout, (t.warp_groups, ROWS * t.head_dim))
        stages_layout = tma.stacked(ring_layout, (t.stages, t.tile_n * t.head_dim))
        sQ, sO = (x.get_tensor(tiles_layout.outer, swizzle=tiles_layout.inner) for x in (storage.q, storage.o))
        sD = None
        if cutlass.const_expr(t.diagonal_in_output):
            sD = sO
        elif cutlass.const_expr(t.diagonal):
            sD = storage.d.get_tensor(tiles_layout.outer, swizzle=tiles_layout.inner)
        sK, sV = (x.get_tensor(stages_layout.outer, swizzle=stages_layout.inner) for x in (storage.k, storage.v))
        buffers = sQ, sD, sO, sK, sV

        keys = gK.shape[0] if cutlass.const_expr(t.ranges) else gQ.shape[0]
        registers, producer_registers = REGISTERS[t.warp_groups]
        if warp_index < 4:
            cute.arch.setmaxregister_decrease(producer_registers)
            if warp_index == 0:
                atoms, tensors = (tma_q, tma_k, tma_v, tma_dk), (gQ, gK, gV, gDk)
                load_inputs(t, atoms, tensors, buffers, rings, keys, work, num_tiles)
            elif warp_index == 1:
                atoms, tensors = (tma_dk, tma_dv, tma_o), (gDk, gDv, gO)
                store_outputs(t, atoms, tensors, sO, rings[1:3], keys, work, num_tiles)
        else:
            cute.arch.setmaxregister_increase(registers)
            scales = scale, scale_log2, before_cap
            consume(t, mLSE, gO.shape, keys, buffers, rings, work, scales, num_tiles, mma_qk, mma_pv)

    def _storage(self) -> Any:
        """In this order nothing is padded: buffers are multiples of 1024 bytes, barriers come last."""
        t = self.traits

        def buffer(rows: int) -> Any:
            return cute.struct.Align[cute.struct.MemRange[t.dtype, rows * t.head_dim], 1024]

        @cute.struct
        class Storage:
            q: buffer(t.tile_m)
            if t.diagonal and not t.diagonal_in_output:
                d: buffer(t.tile_m)
            o: buffer(t.tile_m)
            k: buffer(t.stages * t.tile_n)
            v: buffer(t.stages * t.tile_n)
            barriers: cute.struct.MemRange[Int64, 6 * t.warp_groups + 2 * t.stages]

        return Storage
