"""Tiles in the registers of a warp group, as wgmma lays them out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu

TILE = plgpu.Layout.WGMMA
ROW = TILE.reduce(1)  # a value per row
COLUMN = TILE.reduce(0)  # a value per column


def load(ref: Any) -> jax.Array:
    """A tile from shared memory, in float32."""
    return plgpu.load(ref, (), layout=TILE, optimized=False).astype(jnp.float32)


def full(shape: tuple[int, ...], value: float, layout: Any = TILE) -> jax.Array:
    return plgpu.layout_cast(jnp.full(shape, value, dtype=jnp.float32), layout)


def across(rows: jax.Array, columns: int) -> jax.Array:
    """A row's value in each of its columns."""
    return lax.broadcast_in_dim(rows, (rows.shape[0], columns), [0])


def down(columns: jax.Array, rows: int) -> jax.Array:
    """A column's value in each of its rows."""
    return lax.broadcast_in_dim(columns, (rows, columns.shape[0]), [1])


def numbers(base: Any, shape: tuple[int, ...], axis: int, layout: Any = TILE) -> jax.Array:
    """``base`` and what follows it, along ``axis``."""
    return base + plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=layout)
