"""dQ. Warp groups with a tile of rows each, which see the keys that the forward kernel saw."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from attnctl_kernels.ranker_fa3.sm90.fragments import ROW, across, full, load, numbers
from attnctl_kernels.ranker_fa3.sm90.ring import LOAD_REGISTERS, Ring, feed, registers_of, ring_rows_of, tile
from attnctl_kernels.ranker_fa3.sm90.scores import Scores
from attnctl_kernels.ranker_fa3.sm90.walk import Bounds, HistoryWalk, grid_of


def dq(
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
) -> jax.Array:
    """Gradient of q. ``lse`` is in powers of two, and plus infinity where a row sees nothing: its weights are 0."""
    batch_size, seqlen, num_heads, head_dim = q.shape
    group = num_heads // k.shape[2]
    ring_rows = ring_rows_of(block_q * wgs, block_kv, stages)
    own_base = ring_rows - block_q * wgs

    def kernel(
        q_ref: Any,
        k_ref: Any,
        v_ref: Any,
        dout_ref: Any,
        lse_ref: Any,
        delta_ref: Any,
        bound_ref: Any,
        dq_ref: Any,
        q_smem: Any,
        dout_smem: Any,
        k_smem: Any,
        v_smem: Any,
        lse_smem: Any,
        delta_smem: Any,
        barriers: Any,
        rows_loaded: Any,
        own_loaded: Any,
        own_consumed: Any,
    ) -> None:
        batch, head, wg = (lax.axis_index(name) for name in ("batch", "heads", "wg"))
        kv_head = lax.div(head, jnp.int32(group))
        tile_base = lax.axis_index("tiles") * (wgs * block_q)
        bounds = Bounds.load(bound_ref, batch)
        has_own = bounds.has_candidates(tile_base, tile_base + wgs * block_q)
        visible = has_own | bounds.has_history(tile_base, tile_base + wgs * block_q)
        walk = HistoryWalk.of(bounds, block_kv, visible)
        ring = Ring(stages, *barriers)

        @pl.when(wg < wgs)
        def _compute() -> None:
            plgpu.set_max_registers(registers_of(wgs), action="increase")
            base = tile_base + wg * block_q
            rows = pl.ds(base, block_q)
            own = pl.ds(own_base + wg * block_q, block_q)
            q_tile, dout_tile = q_smem.at[wg], dout_smem.at[wg]
            for source, smem in (
                (q_ref.at[batch, rows, head], q_tile),
                (dout_ref.at[batch, rows, head], dout_tile),
                (lse_ref.at[batch, head, rows], lse_smem.at[wg]),
                (delta_ref.at[batch, head, rows], delta_smem.at[wg]),
            ):
                plgpu.copy_gmem_to_smem(source, smem, rows_loaded.at[wg])

            @pl.when(has_own)
            def _load_own() -> None:
                for ref, smem in ((k_ref, k_smem), (v_ref, v_smem)):
                    plgpu.copy_gmem_to_smem(ref.at[batch, rows, kv_head], smem.at[own], own_loaded.at[wg])

            plgpu.barrier_wait(rows_loaded.at[wg])
            row_lse, row_delta = (plgpu.load(smem, (wg,), layout=ROW) for smem in (lse_smem, delta_smem))

            def begin_with_own() -> jax.Array:
                """A candidate's own key: two row-wise dot products in place of two blocks of matrix products."""
                plgpu.barrier_wait(own_loaded.at[wg])
                d_weight = (load(dout_tile) * load(v_smem.at[own])).sum(axis=1)
                key = load(k_smem.at[own])
                plgpu.barrier_arrive(own_consumed)
                product = (load(q_tile) * key).sum(axis=1)
                weight = jnp.exp2(scores.bent(product) * scores.factor - row_lse)
                d_score = weight * (d_weight - row_delta) * scores.slope(product)
                mine = bounds.is_candidate(numbers(base, (block_q,), 0, ROW))
                return key * across(jnp.where(mine, d_score, 0.0), head_dim)

            def attend(step: Any, acc: jax.Array, ragged: bool) -> jax.Array:
                slot = pl.ds(ring.slot(step) * block_kv, block_kv)
                ring.wait(step)

                def multiply(product: Any, d_weight: Any) -> tuple[jax.Array, jax.Array]:
                    plgpu.wgmma(product, q_tile, plgpu.transpose_ref(k_smem.at[slot], (1, 0)))
                    plgpu.wgmma(d_weight, dout_tile, plgpu.transpose_ref(v_smem.at[slot], (1, 0)))
                    return product[...], d_weight[...]

                sums = plgpu.ACC((block_q, block_kv), jnp.float32)
                product, d_weight = pl.run_scoped(multiply, sums, sums)
                weight = jnp.exp2(scores.bent(product) * scores.factor - across(row_lse, block_kv))
                if ragged:
                    keys = numbers(walk.block(step) * block_kv, weight.shape, 1)
                    weight = jnp.where(bounds.is_history(keys), weight, 0.0)
                d_score = weight * (d_weight - across(row_delta, block_kv)) * scores.slope(product)

                def accumulate(acc: Any) -> None:
                    plgpu.wgmma(acc, d_score.astype(q.dtype), k_smem.at[slot])

                acc = pl.run_state(accumulate)(plgpu.ACC.init(acc))
                ring.release(step)
                return acc

            acc = lax.cond(has_own, begin_with_own, lambda: full((block_q, head_dim), 0))
            acc = lax.fori_loop(0, walk.ragged, lambda step, acc: attend(step, acc, True), acc)
            acc = lax.fori_loop(walk.ragged, walk.steps, lambda step, acc: attend(step, acc, False), acc)
            q_tile[...] = (acc * scores.scale).astype(q.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(q_tile, dq_ref.at[batch, rows, head])
            plgpu.wait_smem_to_gmem(0)

        @pl.when(wg == wgs)
        def _memory() -> None:
            plgpu.set_max_registers(LOAD_REGISTERS, action="decrease")

            def copy(step: Any, slot: Any, barrier: Any) -> None:
                rows = pl.ds(walk.block(step) * block_kv, block_kv)
                for ref, smem in ((k_ref, k_smem), (v_ref, v_smem)):
                    plgpu.copy_gmem_to_smem(
                        ref.at[batch, rows, kv_head], smem.at[pl.ds(slot * block_kv, block_kv)], barrier
                    )

            def before(step: Any) -> None:
                pl.when(has_own & (step == own_base // block_kv))(lambda: plgpu.barrier_wait(own_consumed))

            feed(walk.steps, (ring, copy), before=before)

    return plgpu.kernel(
        kernel,
        out_type=q,
        scratch_types=(
            tile((wgs, block_q, head_dim), q.dtype),
            tile((wgs, block_q, head_dim), q.dtype),
            tile((ring_rows, head_dim), q.dtype),
            tile((ring_rows, head_dim), q.dtype),
            plgpu.SMEM((wgs, block_q), jnp.float32),
            plgpu.SMEM((wgs, block_q), jnp.float32),
            Ring.barriers(stages, wgs, 2),
            plgpu.Barrier(num_arrivals=4, num_barriers=wgs),
            plgpu.Barrier(num_arrivals=2, num_barriers=wgs),
            plgpu.Barrier(num_arrivals=wgs),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
        num_threads=wgs + 1,
        thread_name="wg",
        **grid_of((batch_size, num_heads, seqlen // (wgs * block_q))),
    )(q, k, v, dout, lse, delta, bound)
