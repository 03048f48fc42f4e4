"""Stages of shared memory that one warp group fills and others read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))  # as wgmma reads 16-bit elements


LOAD_REGISTERS = 40  # what setmaxnreg leaves the warp group that loads


def registers_of(wgs: int) -> int:
    """What setmaxnreg gives each of so many compute warp groups: what the one that loads leaves."""
    return min(256, (512 - LOAD_REGISTERS) // wgs // 8 * 8)


def tile(shape: tuple[int, ...], dtype: Any) -> Any:
    """Shared memory that matrix products read."""
    return plgpu.SMEM(shape, dtype, transforms=TILED)


def ring_rows_of(own_rows: int, block: int, stages: int) -> int:
    """Rows of a ring of keys whose end holds the tile's own keys, before it is filled for the first time."""
    return max(own_rows, block * stages)


@dataclass(frozen=True)
class Ring:
    """``loaded`` and ``consumed`` hold a barrier per stage; what is loaded together shares them."""

    stages: int
    loaded: Any
    consumed: Any

    @staticmethod
    def barriers(stages: int, readers: int, buffers: int = 1) -> tuple[Any, Any]:
        """Of a ring with so many buffers, read by so many warp groups."""
        loaded = plgpu.Barrier(num_arrivals=buffers, num_barriers=stages)
        return loaded, plgpu.Barrier(num_arrivals=readers, num_barriers=stages)

    def slot(self, step: Any) -> Any:
        return lax.rem(step, jnp.int32(self.stages))

    def wait(self, step: Any) -> None:
        plgpu.barrier_wait(self.loaded.at[self.slot(step)])

    def release(self, step: Any) -> None:
        plgpu.barrier_arrive(self.consumed.at[self.slot(step)])


Load = Callable[[Any, Any, Any], None]  # of a step, its slot, and the barrier to arrive at


def feed(steps: Any, *lanes: tuple[Ring, Load], before: Callable[[Any], None] | None = None) -> None:
    """What the memory warp group does: fill every stage in turn, and see all of them released.

    ``before`` is called ahead of every load.
    """
    (stages,) = {ring.stages for ring, _ in lanes}

    @pl.loop(jnp.int32(0), steps + stages)
    def _step(step: Any) -> None:
        if before:
            pl.when(step < steps)(lambda: before(step))
        for ring, load in lanes:
            slot = ring.slot(step)

            @pl.when(step >= stages)
            def _wait(ring: Ring = ring, slot: Any = slot) -> None:
                plgpu.barrier_wait(ring.consumed.at[slot])

            @pl.when(step < steps)
            def _load(ring: Ring = ring, slot: Any = slot, load: Load = load) -> None:
                load(step, slot, ring.loaded.at[slot])
