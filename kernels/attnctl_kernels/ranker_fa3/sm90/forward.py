"""O and LSE. Two compute warp groups with a tile of rows each, and one that loads."""

from __future__ import annotations

import math
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

WGS = 2  # compute warp groups


def forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bound: jax.Array,
    *,
    scores: Scores,
    block_q: int,
    block_kv: int,
    stages: int,
    schedule: bool,
) -> tuple[jax.Array, jax.Array]:
    """O as q, and LSE ``(batch_size, num_heads_q, seqlen)``."""
    batch_size, seqlen, num_heads, head_dim = q.shape
    group = num_heads // k.shape[2]
    ring_rows = ring_rows_of(block_q * WGS, block_kv, stages)
    own_base = ring_rows - block_q * WGS  # the tile's own keys lie where the ring is filled last

    def kernel(
        q_ref: Any,
        k_ref: Any,
        v_ref: Any,
        bound_ref: Any,
        out_ref: Any,
        lse_ref: Any,
        q_smem: Any,
        k_smem: Any,
        v_smem: Any,
        lse_smem: Any,
        k_barriers: Any,
        v_barriers: Any,
        q_loaded: Any,
        own_loaded: Any,
        own_consumed: Any,
        turn: Any,
    ) -> None:
        batch, head, wg = (lax.axis_index(name) for name in ("batch", "heads", "wg"))
        kv_head = lax.div(head, jnp.int32(group))
        tile_base = lax.axis_index("tiles") * (WGS * block_q)
        bounds = Bounds.load(bound_ref, batch)
        has_own = bounds.has_candidates(tile_base, tile_base + WGS * block_q)
        visible = has_own | bounds.has_history(tile_base, tile_base + WGS * block_q)
        walk = HistoryWalk.of(bounds, block_kv, visible)
        k_ring, v_ring = Ring(stages, *k_barriers), Ring(stages, *v_barriers)

        def take_turns() -> None:
            if schedule:
                plgpu.barrier_arrive(turn)
                plgpu.barrier_wait(turn)

        @pl.when(wg < WGS)
        def _compute() -> None:
            plgpu.set_max_registers(registers_of(WGS), action="increase")
            base = tile_base + wg * block_q
            rows = pl.ds(base, block_q)
            own = pl.ds(own_base + wg * block_q, block_q)
            q_tile = q_smem.at[wg]
            plgpu.copy_gmem_to_smem(q_ref.at[batch, rows, head], q_tile, q_loaded.at[wg])

            @pl.when(has_own)
            def _load_own() -> None:
                for ref, smem in ((k_ref, k_smem), (v_ref, v_smem)):
                    plgpu.copy_gmem_to_smem(ref.at[batch, rows, kv_head], smem.at[own], own_loaded.at[wg])

            plgpu.barrier_wait(q_loaded.at[wg])

            def begin_with_own() -> tuple[jax.Array, ...]:
                """A candidate's own key begins its running softmax: with weight 1, and its value as the sum."""
                plgpu.barrier_wait(own_loaded.at[wg])
                product = load(q_tile) * load(k_smem.at[own])
                score = scores.bent(product.sum(axis=1)) * scores.factor
                value = load(v_smem.at[own])
                plgpu.barrier_arrive(own_consumed)
                mine = bounds.is_candidate(numbers(base, (block_q,), 0, ROW))
                return (
                    jnp.where(across(mine, head_dim), value, 0.0),
                    jnp.where(mine, score, -jnp.inf),
                    jnp.where(mine, 1.0, 0.0),
                )

            def begin_empty() -> tuple[jax.Array, ...]:
                return (
                    full((block_q, head_dim), 0),
                    full((block_q,), -jnp.inf, ROW),
                    full((block_q,), 0, ROW),
                )

            carry = lax.cond(has_own, begin_with_own, begin_empty)
            pl.when(walk.steps > 0)(lambda: k_ring.wait(jnp.int32(0)))
            pl.when(wg == 1)(take_turns)

            def attend(step: Any, carry: tuple[jax.Array, ...], ragged: bool) -> tuple[jax.Array, ...]:
                acc, highest, total = carry
                slot = pl.ds(k_ring.slot(step) * block_kv, block_kv)

                def multiply_qk(s: Any) -> jax.Array:
                    plgpu.wgmma(s, q_tile, plgpu.transpose_ref(k_smem.at[slot], (1, 0)))
                    take_turns()
                    return s[...]

                s = scores.bent(pl.run_scoped(multiply_qk, plgpu.ACC((block_q, block_kv), jnp.float32)))
                k_ring.release(step)
                if ragged:
                    keys = numbers(walk.block(step) * block_kv, s.shape, 1)
                    s = jnp.where(bounds.is_history(keys), s, -jnp.inf)
                before, highest = highest, jnp.maximum(highest, s.max(axis=1) * scores.factor)
                p = jnp.exp2(s * scores.factor - across(highest, block_kv))
                alpha = jnp.exp2(before - highest)
                acc *= across(alpha, head_dim)
                total *= alpha
                weights = p.astype(q.dtype)

                def end_turn() -> None:
                    if schedule:
                        plgpu.barrier_arrive(turn)
                    v_ring.wait(step)
                    if schedule:
                        plgpu.barrier_wait(turn)

                # Up to a head dimension of 128 there are registers for the sum before the turn ends.
                if head_dim <= 128:
                    total += p.sum(axis=1)
                    acc, total, highest, weights = lax.optimization_barrier((acc, total, highest, weights))
                    end_turn()
                else:
                    end_turn()
                    total += p.sum(axis=1)

                def multiply_pv(acc: Any) -> None:
                    plgpu.wgmma(acc, weights, v_smem.at[slot])
                    pl.when(step + 1 < walk.steps)(lambda: k_ring.wait(step + 1))

                acc = pl.run_state(multiply_pv)(plgpu.ACC.init(acc))
                v_ring.release(step)
                return acc, highest, total

            carry = lax.fori_loop(0, walk.ragged, lambda step, carry: attend(step, carry, True), carry)
            carry = lax.fori_loop(walk.ragged, walk.steps, lambda step, carry: attend(step, carry, False), carry)
            pl.when(wg == 0)(take_turns)

            acc, highest, total = carry
            row = numbers(base, (block_q,), 0, ROW)
            sees = (bounds.is_history(row) | bounds.is_candidate(row)) & (total > 0)
            acc = jnp.where(across(sees, head_dim), acc * across(1 / jnp.where(sees, total, 1.0), head_dim), 0.0)
            q_tile[...] = acc.astype(q.dtype)
            lse_smem[wg] = jnp.where(sees, highest * math.log(2) + jnp.log(total), -jnp.inf)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(q_tile, out_ref.at[batch, rows, head])
            plgpu.copy_smem_to_gmem(lse_smem.at[wg], lse_ref.at[batch, head, rows])
            plgpu.wait_smem_to_gmem(0)

        @pl.when(wg == WGS)
        def _memory() -> None:
            plgpu.set_max_registers(LOAD_REGISTERS, action="decrease")

            def copy_from(ref: Any, smem: Any) -> Any:
                def copy(step: Any, slot: Any, barrier: Any) -> None:
                    source = ref.at[batch, pl.ds(walk.block(step) * block_kv, block_kv), kv_head]
                    plgpu.copy_gmem_to_smem(source, smem.at[pl.ds(slot * block_kv, block_kv)], barrier)

                return copy

            def before(step: Any) -> None:
                pl.when(has_own & (step == own_base // block_kv))(lambda: plgpu.barrier_wait(own_consumed))

            feed(walk.steps, (k_ring, copy_from(k_ref, k_smem)), (v_ring, copy_from(v_ref, v_smem)), before=before)

    return plgpu.kernel(
        kernel,
        out_type=(q, jax.ShapeDtypeStruct((batch_size, num_heads, seqlen), jnp.float32)),
        scratch_types=(
            tile((WGS, block_q, head_dim), q.dtype),
            tile((ring_rows, head_dim), q.dtype),
            tile((ring_rows, head_dim), q.dtype),
            plgpu.SMEM((WGS, block_q), jnp.float32),
            Ring.barriers(stages, WGS),
            Ring.barriers(stages, WGS),
            plgpu.Barrier(num_barriers=WGS),
            plgpu.Barrier(num_arrivals=2, num_barriers=WGS),
            plgpu.Barrier(num_arrivals=WGS),
            plgpu.Barrier(num_arrivals=WGS),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
        num_threads=WGS + 1,
        thread_name="wg",
        **grid_of((batch_size, num_heads, seqlen // (WGS * block_q))),
    )(q, k, v, bound)
