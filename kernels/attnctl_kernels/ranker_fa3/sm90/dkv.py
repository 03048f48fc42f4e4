"""dK and dV. Warp groups with a tile of keys each, past which the queries of all heads of a group stream."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from attnctl_kernels.ranker_fa3.sm90.fragments import COLUMN, ROW, across, down, full, numbers
from attnctl_kernels.ranker_fa3.sm90.ring import LOAD_REGISTERS, Ring, feed, registers_of, tile
from attnctl_kernels.ranker_fa3.sm90.scores import Scores
from attnctl_kernels.ranker_fa3.sm90.walk import Bounds, QueryWalk, grid_of, own_blocks


def dkv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    dout: jax.Array,
    lse: jax.Array,
    delta: jax.Array,
    bound: jax.Array,
    *,
    scores: Scores,
    block_q: int,
    block_kv: int,
    stages: int,
    wgs: int,
) -> tuple[jax.Array, jax.Array]:
    """Gradients of k and v; ``lse`` as in :func:`dq`.

    Keys of history meet every query that sees any, without a mask: a query that sees nothing has weight 0, and rows
    of the tile that are no history are cleared afterwards. Candidates then meet themselves, on the diagonal.
    """
    batch_size, seqlen, num_heads, head_dim = q.shape
    num_heads_kv = k.shape[2]
    group = num_heads // num_heads_kv

    def kernel(
        q_ref: Any,
        k_ref: Any,
        v_ref: Any,
        dout_ref: Any,
        lse_ref: Any,
        delta_ref: Any,
        bound_ref: Any,
        dk_ref: Any,
        dv_ref: Any,
        k_smem: Any,
        v_smem: Any,
        q_smem: Any,
        dout_smem: Any,
        lse_smem: Any,
        delta_smem: Any,
        barriers: Any,
        keys_loaded: Any,
    ) -> None:
        batch, kv_head, wg = (lax.axis_index(name) for name in ("batch", "heads", "wg"))
        tile_base = lax.axis_index("tiles") * (wgs * block_kv)
        tile_end = tile_base + wgs * block_kv
        bounds = Bounds.load(bound_ref, batch)
        walk = QueryWalk.of(bounds, block_q)
        own_first, own_count = own_blocks(bounds, tile_base, tile_end, block_q)
        seen = jnp.where(bounds.has_history(tile_base, tile_end), walk.steps, 0) * group
        steps = seen + own_count * group
        ring = Ring(stages, *barriers)

        def source(step: Any) -> tuple[Any, Any]:
            """Head and first query of a step: first the walk, then the diagonal, head after head."""
            on_diagonal = step >= seen
            blocks = jnp.maximum(jnp.where(on_diagonal, own_count, walk.steps), 1)
            step = jnp.where(on_diagonal, step - seen, step)
            number = lax.rem(step, blocks)
            block = jnp.where(on_diagonal, own_first + number, walk.block(number))
            return kv_head * group + lax.div(step, blocks), block * block_q

        @pl.when(wg < wgs)
        def _compute() -> None:
            plgpu.set_max_registers(registers_of(wgs), action="increase")
            base = tile_base + wg * block_kv
            rows = pl.ds(base, block_kv)
            k_tile, v_tile = k_smem.at[wg], v_smem.at[wg]
            for ref, smem in ((k_ref, k_tile), (v_ref, v_tile)):
                plgpu.copy_gmem_to_smem(ref.at[batch, rows, kv_head], smem, keys_loaded.at[wg])
            plgpu.barrier_wait(keys_loaded.at[wg])

            def attend(step: Any, carry: tuple[jax.Array, jax.Array], diagonal: bool) -> tuple[jax.Array, jax.Array]:
                slot = ring.slot(step)
                ring.wait(step)
                q_tile, dout_tile = q_smem.at[slot], dout_smem.at[slot]

                def multiply(product: Any, d_weight: Any) -> tuple[jax.Array, jax.Array]:
                    plgpu.wgmma(product, k_tile, plgpu.transpose_ref(q_tile, (1, 0)))
                    plgpu.wgmma(d_weight, v_tile, plgpu.transpose_ref(dout_tile, (1, 0)))
                    return product[...], d_weight[...]

                sums = plgpu.ACC((block_kv, block_q), jnp.float32)
                product, d_weight = pl.run_scoped(multiply, sums, sums)
                lse = plgpu.load(lse_smem, (slot,), layout=COLUMN)
                weight = jnp.exp2(scores.bent(product) * scores.factor - down(lse, block_kv))
                if diagonal:
                    queries = numbers(source(step)[1], weight.shape, 1)
                    itself = (queries == numbers(base, weight.shape, 0)) & bounds.is_candidate(queries)
                    weight = jnp.where(itself, weight, 0.0)
                delta = plgpu.load(delta_smem, (slot,), layout=COLUMN)  # only now: registers are short
                d_score = weight * (d_weight - down(delta, block_kv)) * scores.slope(product)

                def accumulate(refs: tuple[Any, Any]) -> None:
                    dk, dv = refs
                    plgpu.wgmma(dv, weight.astype(q.dtype), dout_tile)
                    plgpu.wgmma(dk, d_score.astype(q.dtype), q_tile)

                carry = pl.run_state(accumulate)(tuple(map(plgpu.ACC.init, carry)))
                ring.release(step)
                return carry

            carry = (full((block_kv, head_dim), 0), full((block_kv, head_dim), 0))
            carry = lax.fori_loop(0, seen, lambda step, carry: attend(step, carry, False), carry)
            remembered = across(bounds.is_history(numbers(base, (block_kv,), 0, ROW)), head_dim)
            carry = tuple(jnp.where(remembered, each, 0.0) for each in carry)
            dk, dv = lax.fori_loop(seen, steps, lambda step, carry: attend(step, carry, True), carry)
            k_tile[...] = (dk * scores.scale).astype(k.dtype)
            v_tile[...] = dv.astype(v.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(k_tile, dk_ref.at[batch, rows, kv_head])
            plgpu.copy_smem_to_gmem(v_tile, dv_ref.at[batch, rows, kv_head])
            plgpu.wait_smem_to_gmem(0)

        @pl.when(wg == wgs)
        def _memory() -> None:
            plgpu.set_max_registers(LOAD_REGISTERS, action="decrease")

            def copy(step: Any, slot: Any, barrier: Any) -> None:
                head, first = source(step)
                rows = pl.ds(first, block_q)
                for ref, smem in ((q_ref, q_smem), (dout_ref, dout_smem)):
                    plgpu.copy_gmem_to_smem(ref.at[batch, rows, head], smem.at[slot], barrier)
                for ref, smem in ((lse_ref, lse_smem), (delta_ref, delta_smem)):
                    plgpu.copy_gmem_to_smem(ref.at[batch, head, rows], smem.at[slot], barrier)

            feed(steps, (ring, copy))

    return plgpu.kernel(
        kernel,
        out_type=(k, v),
        scratch_types=(
            tile((wgs, block_kv, head_dim), k.dtype),
            tile((wgs, block_kv, head_dim), k.dtype),
            tile((stages, block_q, head_dim), q.dtype),
            tile((stages, block_q, head_dim), q.dtype),
            plgpu.SMEM((stages, block_q), jnp.float32),
            plgpu.SMEM((stages, block_q), jnp.float32),
            Ring.barriers(stages, wgs, 4),
            plgpu.Barrier(num_arrivals=2, num_barriers=wgs),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
        num_threads=wgs + 1,
        thread_name="wg",
        **grid_of((batch_size, num_heads_kv, seqlen // (wgs * block_kv))),
    )(q, k, v, dout, lse, delta, bound)
