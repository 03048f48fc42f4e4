"""The three backward kernels step by step in NumPy, where rows see ranges, over what the device visits and hides."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from ranker_spans import Spans  # noqa: E402
from ranker_tables import of_definition, tables  # noqa: E402
from test_ranker_backward_model import GROUP, HEAD_DIM, HEADS, SCALE, rows_from  # noqa: E402

BATCH_SIZE = 2
FORMS = [(64, 128, (300, 300)), (128, 128, (130, 333)), (64, 64, (333, 70))]


def gradients(q, k, v, dout, seen):
    """Of one batch row and query head, from the definition."""
    scores = np.where(seen, SCALE * (q @ k.T), -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.logaddexp.reduce(scores, axis=1)
    p = np.exp(scores - np.where(seen.any(1), lse, 0.0)[:, None])
    out = p @ v
    ds = p * (dout @ v.T - (out * dout).sum(1)[:, None])
    return out, lse, (SCALE * ds @ k, SCALE * ds.T @ q, p.T @ dout)


def model(spans, found, inputs):
    """Of ``[B, H, Sq, D]`` and ``[B, Hkv, Sk, D]``: dq, dk, dv."""
    q, k, v, out, lse, dout = inputs
    sums, stats = np.zeros((*q.shape[:2], spans.slots, HEAD_DIM)), np.zeros((*q.shape[:2], 2, spans.slots))
    dk, dv = (np.full_like(x, np.nan) for x in (k, v))
    stats[:, :, 0, : spans.seqlen], stats[:, :, 1, : spans.seqlen] = lse, (out * dout).sum(-1)
    stats[:, :, 0, spans.seqlen :], stats[:, :, 1, spans.seqlen :] = np.inf, 0.0
    for (first_key, kv_head, batch), tiles, kept in zip(found.blocks.tolist(), found.tiles, found.kept, strict=True):
        keys, values = (rows_from(x[batch, kv_head], first_key, spans.tile_n, spans.keys) for x in (k, v))
        dkeys, dvalues = np.zeros_like(keys), np.zeros_like(keys)
        for head in range(kv_head * GROUP, (kv_head + 1) * GROUP):
            for begin, end in tiles:
                here = slice(begin, begin + spans.tile_m)
                queries, of_rows = (rows_from(x[batch, head], begin, spans.tile_m, end) for x in (q, dout))
                row_lse, delta = stats[batch, head, :, here]
                with np.errstate(over="ignore"):
                    p = np.where(kept[here].T > 0, np.exp(SCALE * keys @ queries.T - row_lse), 0.0)
                ds = p * (values @ of_rows.T - delta)
                dvalues += p @ of_rows
                dkeys += ds @ queries
                sums[batch, head, here] += ds.T @ keys
        stop = min(first_key + spans.tile_n, spans.keys)
        dk[batch, kv_head, first_key:stop] = SCALE * dkeys[: stop - first_key]
        dv[batch, kv_head, first_key:stop] = dvalues[: stop - first_key]
    return SCALE * sums[:, :, : spans.seqlen], dk, dv


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_kernels_steps_are_the_gradients(form):
    spans, draw = Spans(*form, BATCH_SIZE, HEADS), np.random.default_rng(0)
    _, _, (seqlen, keys) = form
    q, dout = (draw.normal(size=(BATCH_SIZE, HEADS * GROUP, seqlen, HEAD_DIM)) for _ in range(2))
    k, v = (draw.normal(size=(BATCH_SIZE, HEADS, keys, HEAD_DIM)) for _ in range(2))
    for name, table in tables(seqlen, keys, 4):
        both = np.stack([table, table // 2])
        out, lse = np.zeros_like(q), np.zeros(q.shape[:3])
        expected = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for batch, each in enumerate(both):
            for head in range(HEADS * GROUP):
                kv, seen = head // GROUP, of_definition(each, keys)
                out[batch, head], lse[batch, head], found = gradients(
                    q[batch, head], k[batch, kv], v[batch, kv], dout[batch, head], seen
                )
                for target, at, part in zip(expected, (head, kv, kv), found, strict=True):
                    target[batch, at] += part
        result = model(spans, spans(both), (q, k, v, out, lse, dout))
        for output, one, other in zip(("dq", "dk", "dv"), result, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=f"{output}, {name}")
