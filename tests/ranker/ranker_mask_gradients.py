"""Gradients of attention where each row sees one range of keys, by formula in float32."""

import math
from typing import NamedTuple

import torch
from ranker_gradients import GUARD, NAMES, tolerance


class Call(NamedTuple):
    """What the backward kernels are told, and inputs of which whatever lies around them in memory is NaN."""

    table: torch.Tensor  # (batch_size or 1, seqlen_q, 2) int32
    keys: int
    batch_size: int
    num_heads_q: int
    num_heads_kv: int
    head_dim: int
    dtype: torch.dtype
    seed: int = 0
    cap: float | None = None
    name: str = ""

    def __str__(self):
        heads = f"heads {self.num_heads_q}/{self.num_heads_kv}, head_dim {self.head_dim}, {self.dtype}"
        lengths = f"{self.batch_size} x {self.table.shape[1]}, {self.keys} keys"
        return f"{self.name}: {lengths}, {heads}, cap {self.cap}, seed {self.seed}"

    @property
    def scale(self):
        return 1.3 / math.sqrt(self.head_dim)

    def tensors(self, device):
        """``q``, ``k``, ``v``, ``dout``."""
        generator, found = torch.Generator().manual_seed(self.seed), []
        queries, keys = (self.table.shape[1], self.num_heads_q), (self.keys, self.num_heads_kv)
        for length, heads in (queries, keys, keys, queries):
            x = torch.full((self.batch_size, length + 2 * GUARD, heads, self.head_dim), math.nan, dtype=self.dtype)
            inner = torch.randn(self.batch_size, length, heads, self.head_dim, generator=generator)
            x[:, GUARD:-GUARD] = inner.to(self.dtype)
            found.append(x.to(device)[:, GUARD:-GUARD])
        return found

    def sees(self, device):
        """``(batch_size or 1, seqlen_q, keys)``."""
        key, table = torch.arange(self.keys, device=device), self.table.to(device)
        return (table[..., :1] <= key) & (key < table[..., 1:])


def expected(call, q, k, v, dout):
    """``dq``, ``dk``, ``dv``."""
    group = call.num_heads_q // call.num_heads_kv
    q, k, v, dout = (x.float().transpose(1, 2) for x in (q, k, v, dout))
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores, slope = q @ k.mT * call.scale, 1.0
    if call.cap is not None:
        bent = torch.tanh(scores / call.cap)
        scores, slope = call.cap * bent, 1 - bent * bent
    scores = scores.masked_fill(~call.sees(q.device)[:, None], -math.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    p = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0))
    ds = p * (dout @ v.mT - (p @ v * dout).sum(-1, keepdim=True)) * slope * call.scale
    dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (ds.mT @ q, p.mT @ dout))
    return tuple(x.transpose(1, 2) for x in (ds @ k, dk, dv))


def faults(call, found, wanted):
    """What is wrong, output by output, or nothing. What sees nothing, or is seen by nobody, has gradients of 0."""
    seen = call.sees(found[0].device).expand(call.batch_size, -1, -1)
    blind = {"dq": ~seen.any(2), "dk": ~seen.any(1), "dv": ~seen.any(1)}
    lines = []
    for name, gradient, other in zip(NAMES, found, wanted, strict=True):
        one = gradient.float()
        wrong = ~((one - other).abs() <= tolerance(call, other))
        if wrong.any():
            rows = wrong.any(3).any(2).cpu()
            where = [f"row {b} {spans_of(each)}" for b, each in enumerate(rows) if each.any()]
            batch, row, head, column = (int(each) for each in wrong.nonzero()[0])
            first = f"{float(one[batch, row, head, column]):.5f}, wanted {float(other[batch, row, head, column]):.5f}"
            lines += [
                f"{name}: {int(wrong.sum())} of {wrong.numel()} wrong, {int(one.isnan().sum())} NaN; batch {where}"
            ]
            lines += [f"  row {row} head {head} column {column}: {first}"]
        if gradient[blind[name]].any():
            lines += [f"{name}: not 0 where nobody sees anything"]
    return [str(call), *lines] if lines else []


def spans_of(rows):
    at = rows.nonzero()[:, 0]
    return f"{int(at[0])}-{int(at[-1])} ({len(at)} of {len(rows)})"
