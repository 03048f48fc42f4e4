"""The three backward kernels step by step in NumPy, over the walk of the device code, against the formulas.

What the kernels leave undefined is NaN here as well: memory that nobody wrote, and rows that nobody sees.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from ranker_walk import Walk  # noqa: E402
from test_ranker_backward_walk import BATCH_SIZE, EDGES, HEADS, SEQLEN, of_definition, random_bounds  # noqa: E402

HEAD_DIM, GROUP, SCALE = 8, 2, 0.4


def gradients(q, k, v, dout, bounds):
    """Of one batch row and query head, from the definition."""
    history, visible = of_definition(bounds)
    seen = (visible[:, None] & history) | np.diag(visible & ~history)
    q, k, v, dout = (np.where(visible[:, None], x, 0.0) for x in (q, k, v, dout))
    scores = np.where(seen, SCALE * (q @ k.T), -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.logaddexp.reduce(scores, axis=1)
    p = np.exp(scores - np.where(visible, lse, 0.0)[:, None])
    out = p @ v
    ds = p * (dout @ v.T - (out * dout).sum(1)[:, None])
    return out, lse, (SCALE * ds @ k, SCALE * ds.T @ q, p.T @ dout)


def rows_from(x, begin, count, end):
    """Boxes of TMA: rows from ``end`` on are zeros, or the first is the row before, where there would be none."""
    boxes = []
    for first in range(begin, begin + count, 64):
        part = x[first : min(first + 64, end)] if first < end else x[end - 1 : end]
        boxes.append(np.concatenate([part, np.zeros((64 - len(part), x.shape[1]))]))
    return np.concatenate(boxes)


def model(walk, found, inputs, bounds):
    """Of ``[B, H, S, D]`` and ``[B, Hkv, S, D]``: dq, dk, dv."""
    q, k, v, out, lse, dout = inputs
    slots = walk.most_tiles * walk.tile_m
    sums = np.full((*q.shape[:2], slots, HEAD_DIM), np.nan)
    stats = np.full((*q.shape[:2], 2, slots), np.nan)
    dq, dk, dv = (np.full_like(x, np.nan) for x in (q, k, v))
    for batch in range(BATCH_SIZE):  # prepare
        history, _ = of_definition(bounds[batch])
        for kv_head in range(HEADS):
            for row in range(walk.seqlen + 2 * walk.tile_m):
                slot = found.slots[batch, row] if row < walk.seqlen else -1
                candidate = slot >= 0 and not history[row]
                key, value = (x[batch, kv_head, row] if candidate else np.zeros(HEAD_DIM) for x in (k, v))
                dkey, dvalue = np.zeros(HEAD_DIM), np.zeros(HEAD_DIM)
                for head in range(kv_head * GROUP, (kv_head + 1) * GROUP):
                    if slot >= 0:
                        of_row = dout[batch, head, row]
                        delta = out[batch, head, row] @ of_row
                        query = q[batch, head, row] if candidate else np.zeros(HEAD_DIM)
                        p = np.exp(SCALE * query @ key - lse[batch, head, row]) if candidate else 0.0
                        ds = p * (value @ of_row - delta)
                        dkey += ds * query
                        dvalue += p * of_row
                        sums[batch, head, slot] = ds * key
                        stats[batch, head, :, slot] = lse[batch, head, row], delta
                    if found.spare[batch, row]:
                        stats[batch, head, :, row] = np.inf, 0.0
                if row < walk.seqlen and not history[row]:
                    dk[batch, kv_head, row], dv[batch, kv_head, row] = SCALE * dkey, dvalue
    for first_key, kv_head, batch in found.blocks.tolist():  # main
        if batch == BATCH_SIZE:
            continue
        end = int(np.flatnonzero(of_definition(bounds[batch])[0])[-1]) + 1
        keys, values = (rows_from(x[batch, kv_head], first_key, walk.tile_n, end) for x in (k, v))
        seen = first_key + np.arange(walk.tile_n) < end
        dkeys, dvalues = np.zeros_like(keys), np.zeros_like(keys)
        for head in range(kv_head * GROUP, (kv_head + 1) * GROUP):
            for tile, (begin, tile_end) in enumerate(found.tiles[batch]):
                here = slice(tile * walk.tile_m, (tile + 1) * walk.tile_m)
                queries, of_rows = (rows_from(x[batch, head], begin, walk.tile_m, tile_end) for x in (q, dout))
                row_lse, delta = stats[batch, head, :, here]
                p = np.exp(SCALE * keys @ queries.T - row_lse)
                ds = np.where(seen[:, None], p * (values @ of_rows.T - delta), 0.0)
                dvalues += p @ of_rows
                dkeys += ds @ queries
                sums[batch, head, here] += ds.T @ keys
        stop = min(first_key + walk.tile_n, end)
        dk[batch, kv_head, first_key:stop] = SCALE * dkeys[: stop - first_key]
        dv[batch, kv_head, first_key:stop] = dvalues[: stop - first_key]
    for batch in range(BATCH_SIZE):  # finish
        slot = found.slots[batch]
        dq[batch] = np.where((slot >= 0)[:, None], SCALE * sums[batch][:, slot], 0.0)
    return dq, dk, dv


@pytest.fixture(scope="module")
def walk():
    return Walk(64, 128, SEQLEN, BATCH_SIZE, HEADS)


@pytest.mark.parametrize("bounds", [*EDGES, *random_bounds(3, seed=5)])
def test_the_kernels_steps_are_the_gradients(walk, bounds):
    draw = np.random.default_rng(0)
    q, dout = (draw.normal(size=(BATCH_SIZE, HEADS * GROUP, SEQLEN, HEAD_DIM)) for _ in range(2))
    k, v = (draw.normal(size=(BATCH_SIZE, HEADS, SEQLEN, HEAD_DIM)) for _ in range(2))
    for batch, each in enumerate(bounds):
        unseen = ~of_definition(each)[1]
        for x in (q, k, v, dout):
            x[batch, :, unseen] = np.nan
    out, lse = np.zeros_like(q), np.zeros(q.shape[:3])
    expected = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for batch, each in enumerate(bounds):
        for head in range(HEADS * GROUP):
            kv = head // GROUP
            out[batch, head], lse[batch, head], found = gradients(
                q[batch, head], k[batch, kv], v[batch, kv], dout[batch, head], each
            )
            for target, at, part in zip(expected, (head, kv, kv), found, strict=True):
                target[batch, at] += part
    for name, one, other in zip(
        ("dq", "dk", "dv"), model(walk, walk(bounds), (q, k, v, out, lse, dout), bounds), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)
