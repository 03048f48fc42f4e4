"""The producer's warps: one loads what the consumers multiply, one serves the buffer of the output."""

from typing import Any

import cutlass
from cutlass import Int32, cute

from attnctl_kernels.ranker.sm90 import tma
from attnctl_kernels.ranker.sm90.ring import Cursor, Ring
from attnctl_kernels.ranker.sm90.schedule import first_tile, locate, rows_of, visits
from attnctl_kernels.ranker.sm90.traits import ForwardTraits


@cute.jit
def load_inputs(
    t: ForwardTraits, atoms: Any, tensors: Any, buffers: Any, rings: Any, keys: Int32, work: Any, num_tiles: Int32
):
    """Q, K and V, and K on the diagonal where it has a buffer of its own."""
    tma_q, tma_k, tma_v, tma_d = atoms
    gQ, gK, gV, gD = tensors
    sQ, sD, _, sK, sV = buffers
    q_ring, d_ring, _, ring = rings
    tile_at, at = Cursor.start(1), Cursor.start(t.stages)
    index, step = first_tile()
    while index < num_tiles:
        tile, bounds = locate(t, index, gQ.shape, work)
        row, head, batch, end = tile
        clipped, blocks, _ = visits(t, row, end, keys, bounds)
        h_lo, h_hi, _, _ = clipped
        kv_head = head // (gQ.shape[2] // gK.shape[2])
        if cutlass.const_expr(t.ranges):
            # Queries are read from memory but once, and wanted soon after the tile before has let go of their buffer.
            for group in cutlass.range_constexpr(t.warp_groups):
                where = (rows_of(t, tile, group, gQ.shape[0]), head, batch)
                tma.prefetch(tma_q, gQ, where, sQ[None, None, group], t.rows)
        # Buffers in the order in which the tile before lets go of them.
        if cutlass.const_expr(t.diagonal and not t.diagonal_in_output):
            _load_rows(t, tma_d, gD, tile, kv_head, sD, d_ring, tile_at)
        # The last block, which alone may be ragged, comes first. Values come one step behind their keys.
        last = h_lo + (blocks - 1) * t.tile_n
        if blocks > 0:
            barrier = ring.acquire(at, t.num_bytes(t.tile_n))
            tma.load(tma_k, gK, (last, kv_head, batch), sK[None, None, at.index], t.block, barrier)
            at.advance()
        _load_rows(t, tma_q, gQ, tile, head, sQ, q_ring, tile_at)
        tile_at.advance()
        for i in cutlass.range(blocks - 1, unroll=1):
            begin = last - i * t.tile_n
            barrier = ring.acquire(at, 2 * t.num_bytes(t.tile_n))
            tma.load(tma_k, gK, (begin - t.tile_n, kv_head, batch), sK[None, None, at.index], t.block, barrier)
            _load_values(t, tma_v, gV, (begin, h_hi, kv_head, batch), sV[None, None, at.index], barrier)
            at.advance()
        if blocks > 0:
            barrier = ring.acquire(at, t.num_bytes(t.tile_n))
            _load_values(t, tma_v, gV, (h_lo, h_hi, kv_head, batch), sV[None, None, at.index], barrier)
            at.advance()
        index += step


@cute.jit
def store_outputs(
    t: ForwardTraits, atoms: Any, tensors: Any, sO: cute.Tensor, rings: Any, keys: Int32, work: Any, num_tiles: Int32
):
    """Lend the output's buffer to the diagonal, its values or first its keys, and store what comes back in it."""
    tma_dk, tma_dv, tma_o = atoms
    gDk, gDv, gO = tensors
    d_ring, ring = rings
    at = Cursor.start(1)
    index, step = first_tile()
    while index < num_tiles:
        tile, bounds = locate(t, index, gO.shape, work)
        row, head, batch, end = tile
        _, _, has_candidates = visits(t, row, end, keys, bounds)
        kv_head = head // (gO.shape[2] // gDv.shape[2])
        if cutlass.const_expr(t.diagonal_in_output):
            for group in cutlass.range_constexpr(t.warp_groups):
                cute.arch.cp_async_bulk_wait_group(t.warp_groups - 1 - group, read=True)
                _load_group(t, tma_dk, gDk, tile, kv_head, sO, d_ring, at, group)
        for group in cutlass.range_constexpr(t.warp_groups):
            if cutlass.const_expr(t.diagonal_in_output):
                d_ring.wait_released(at.of(group))
            else:
                # Stores end in order: those of later groups may still be reading.
                cute.arch.cp_async_bulk_wait_group(t.warp_groups - 1 - group, read=True)
            if has_candidates:
                _load_group(t, tma_dv, gDv, tile, kv_head, sO, ring, at, group)
            else:
                ring.acquire(at.of(group), 0)
        for group in cutlass.range_constexpr(t.warp_groups):
            ring.wait_released(at.of(group))
            where = (rows_of(t, tile, group, gO.shape[0]), head, batch)
            tma.store(tma_o, sO[None, None, group], gO, where, t.rows)
            cute.arch.cp_async_bulk_commit_group()
        at.advance()
        index += step
    cute.arch.cp_async_bulk_wait_group(0)


def _load_rows(
    t: ForwardTraits, atom: Any, source: Any, tile: Any, head: Int32, target: Any, ring: Ring, at: Cursor
) -> None:
    for group in range(t.warp_groups):
        _load_group(t, atom, source, tile, head, target, ring, at, group)


def _load_group(
    t: ForwardTraits, atom: Any, source: Any, tile: Any, head: Int32, target: Any, ring: Ring, at: Cursor, group: int
) -> None:
    """A warp group's rows of a tile, of this head, into its own buffer."""
    _, _, batch, _ = tile
    where = (rows_of(t, tile, group, source.shape[0]), head, batch)
    barrier = ring.acquire(at.of(group), t.num_bytes(t.rows[0]))
    tma.load(atom, source, where, target[None, None, group], t.rows, barrier)


def _load_values(t: ForwardTraits, atom: Any, source: Any, where: Any, target: Any, barrier: Any) -> None:
    """A block of values that ends with the history, as ``tma.ending_anywhere`` has them."""
    begin, h_hi, kv_head, batch = where
    end = cutlass.min(begin + t.tile_n, h_hi)
    tma.load(atom, source, (begin + t.tile_n - end, end, kv_head, batch), target, t.block, barrier)
