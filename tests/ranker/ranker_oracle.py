"""float32 attention for the ranker kernel's tests: bounds of every kind, and inputs whose padding is poison."""

import math
import random

import torch

EDGES = [  # batch_size, seqlen, num_heads_q, num_heads_kv, bounds
    (1, 128, 1, 1, [[0, 128, 128, 128]]),
    (1, 128, 1, 1, [[0, 0, 0, 128]]),
    (1, 1, 1, 1, [[0, 1, 1, 1]]),
    (1, 1, 1, 1, [[0, 0, 0, 1]]),
    (1, 200, 2, 2, [[0, 0, 0, 0]]),
    (2, 1000, 4, 1, [[0, 700, 700, 1000], [3, 55, 60, 61]]),
    (3, 1000, 8, 1, [[17, 900, 901, 990], [0, 0, 10, 1000], [5, 1000, 0, 0]]),
    (2, 777, 8, 8, [[100, 101, 300, 777], [400, 777, 0, 399]]),
    (2, 300, 2, 2, [[0, 200, 100, 300], [0, 900, -5, 2]]),  # overlapping, and beyond the sequence
]
# One rounding of the output, and weights rounded to 16 bits under values of a normal distribution.
OUT = {"rtol": 0.008, "atol": 0.006}
LSE = {"rtol": 1e-5, "atol": 1e-3}


def random_rows(count, seed=1):
    draw = random.Random(seed)
    for _ in range(count):
        batch_size, seqlen, heads_kv = draw.randint(1, 3), draw.randint(1, 900), draw.randint(1, 2)
        bounds = []
        for _ in range(batch_size):
            a, b, c, d = sorted(draw.randint(0, seqlen) for _ in range(4))
            bounds.append(draw.choice([[a, b, c, d], [c, d, a, b]]))
        yield batch_size, seqlen, heads_kv * draw.choice([1, 4, 8]), heads_kv, bounds


def visible_pairs(seqlen, bounds, device):
    h_lo, h_hi, c_lo, c_hi = bounds
    position = torch.arange(seqlen, device=device)
    history = (h_lo <= position) & (position < h_hi)
    candidate = (c_lo <= position) & (position < c_hi) & ~history
    return ((history | candidate)[:, None] & history) | torch.diag(candidate)


def masked(q, k, v, visible, scale, *, cap=None):
    """Output and LSE, where ``visible`` is ``(batch_size or 1, seqlen_q, seqlen_k)``."""
    k, v = (x.float().repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q.float(), k) * scale
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.nan_to_num(neginf=0.0)[..., None]).exp()
    return torch.einsum("bhij,bjhd->bihd", weights, v), lse


def reference(q, k, v, bounds, scale, *, cap=None):
    visible = torch.stack([visible_pairs(q.shape[1], row, q.device) for row in bounds.tolist()])
    return masked(q, k, v, visible, scale, cap=cap)


def make(case, dtype, head_dim, seed=0):
    """Inputs whose padding is NaN, and their clean copies."""
    batch_size, seqlen, heads_q, heads_kv, rows = case
    torch.manual_seed(seed)
    bounds = torch.tensor(rows, dtype=torch.int32, device="cuda")
    clean = [
        torch.randn(batch_size, seqlen, heads, head_dim, device="cuda", dtype=dtype)
        for heads in (heads_q, heads_kv, heads_kv)
    ]
    padding = torch.stack([~visible_pairs(seqlen, row, "cuda").any(-1) for row in rows])
    return [x.masked_fill(padding[:, :, None, None], math.nan) for x in clean], clean, bounds


def assert_right(found, wanted, told, *, out=OUT, lse=LSE["atol"]):
    """``told`` says what ran: the whole case, so that a failure can be run again alone."""
    tolerances = out, {**LSE, "atol": lse}
    for name, tolerance, each, other in zip(("out", "lse"), tolerances, found, wanted, strict=True):
        where = _worst(each, other)
        torch.testing.assert_close(
            each.float(), other, **tolerance, msg=lambda m, name=name, where=where: f"{name} of {told}: {m}; {where}"
        )


def _worst(found, wanted):
    """Where the two differ most: index, and both values."""
    apart = (found.float() - wanted).abs().nan_to_num(nan=math.inf)
    index = tuple(int(each) for each in torch.unravel_index(apart.argmax(), apart.shape))
    return f"worst at {index}: {float(found[index])} instead of {float(wanted[index])}"
