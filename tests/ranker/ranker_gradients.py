"""Gradients of history/candidate attention by formula, and what is wrong with those of the kernels, in tiles."""

import math
from typing import NamedTuple

import numpy as np
import torch

GUARD = 70  # rows of NaN around every sequence: more than a tile's part
NAMES = ("dq", "dk", "dv")


class Case(NamedTuple):
    """A call: what the backward kernels are told, and inputs whose unseen rows, and whose surroundings, are NaN."""

    bounds: list[list[int]]
    seqlen: int
    num_heads_q: int
    num_heads_kv: int
    head_dim: int
    dtype: torch.dtype
    seed: int = 0
    mute: str = ""  # inputs that are 0: with v, dS is 0, and only dV is not
    cap: float | None = None  # of the logits

    def __str__(self):
        name = str(self.dtype).removeprefix("torch.")
        heads = f"heads {self.num_heads_q}/{self.num_heads_kv}"
        mute = (f", {self.mute} 0" if self.mute else "") + (f", cap {self.cap}" if self.cap else "")
        call = f"seqlen {self.seqlen}, {heads}, head_dim {self.head_dim}, {name}, bounds {self.bounds}"
        return f"{call}, seed {self.seed}{mute}"

    @property
    def scale(self):
        return 1.3 / math.sqrt(self.head_dim)

    def kinds(self):
        """Per batch row: history, candidates, clipped and without overlap."""
        position = torch.arange(self.seqlen)
        for h_lo, h_hi, c_lo, c_hi in self.bounds:
            history = (h_lo <= position) & (position < h_hi)
            yield history, (c_lo <= position) & (position < c_hi) & ~history

    def tensors(self, device):
        """``q``, ``k``, ``v``, ``dout`` as the kernel gets them, and bounds."""
        generator = torch.Generator().manual_seed(self.seed)
        unseen = torch.stack([~(history | candidate) for history, candidate in self.kinds()])
        inputs = []
        heads_of = {"q": self.num_heads_q, "k": self.num_heads_kv, "v": self.num_heads_kv, "dout": self.num_heads_q}
        for name, heads in heads_of.items():
            shape = len(self.bounds), self.seqlen + 2 * GUARD, heads, self.head_dim
            x = torch.full(shape, math.nan, dtype=self.dtype)
            inner = torch.randn(len(self.bounds), self.seqlen, heads, self.head_dim, generator=generator)
            inner = inner * (name not in self.mute.split())
            x[:, GUARD:-GUARD] = inner.to(self.dtype).masked_fill(unseen[:, :, None, None], math.nan)
            inputs.append(x.to(device)[:, GUARD:-GUARD])
        return inputs, torch.tensor(self.bounds, dtype=torch.int32, device=device)


def expected(case, q, k, v, dout):
    """Output and LSE, and ``dq``, ``dk``, ``dv``, in float32; a row at a time sees the history and its own key."""
    leaves = [torch.nan_to_num(x.float()).detach().requires_grad_() for x in (q, k, v)]
    group = case.num_heads_q // case.num_heads_kv
    out, lse = torch.zeros_like(leaves[0]), torch.full(q.shape[:3], -math.inf, device=q.device)
    total = torch.zeros((), device=q.device)
    for batch, (history, candidate) in enumerate(case.kinds()):
        rows = (history | candidate).nonzero()[:, 0].to(q.device)
        keys = history.nonzero()[:, 0].to(q.device)
        own_is_seen = candidate.to(q.device)[rows]
        queries = leaves[0][batch, rows]
        k_all, v_all = (x[batch].repeat_interleave(group, dim=1) for x in leaves[1:])
        scores = torch.einsum("ihd,jhd->hij", queries, k_all[keys]) * case.scale
        own = torch.einsum("ihd,ihd->hi", queries, k_all[rows]) * case.scale
        scores = torch.cat([scores, own[..., None]], -1)
        if case.cap is not None:
            scores = case.cap * torch.tanh(scores / case.cap)
        unseen = torch.zeros_like(scores[0], dtype=torch.bool)
        unseen[:, -1] = ~own_is_seen
        scores = scores.masked_fill(unseen, -math.inf)
        weights = scores.softmax(-1)
        here = torch.einsum("hij,jhd->ihd", weights[..., :-1], v_all[keys])
        here = here + weights[..., -1].T[..., None] * v_all[rows]
        out[batch, rows], lse[batch, rows] = here.detach(), scores.detach().logsumexp(-1).T
        total = total + (here * dout[batch, rows].float()).sum()
    return (out, lse.transpose(1, 2)), torch.autograd.grad(total, leaves, materialize_grads=True)


def tolerance(case, wanted):
    """Weights and their gradients are rounded to 16 bits; a leaked or lost key is a large part of the typical size.

    Of a row as of all: one key of many queries has a gradient many times the others'. A row's delta sums products with
    head_dim outputs that were rounded to 16 bits as well: that error grows with the root of head_dim.
    """
    precision = 1.0 if case.dtype is torch.bfloat16 else 0.25
    typical = wanted.square().mean().sqrt() + wanted.square().mean(-1, keepdim=True).sqrt()
    of_delta = max(1.0, math.sqrt(case.head_dim / 128))
    return (0.03 * wanted.abs() + 0.1 * of_delta * typical + 0.01) * precision


def faults(case, found, wanted, tile_m, tile_n):
    """What is wrong, output by output, or nothing."""
    lines = []
    for name, gradient, other in zip(NAMES, found, wanted, strict=True):
        one = gradient.float()
        wrong = ~((one - other).abs() <= tolerance(case, other))
        if wrong.any():
            lines += [f"{name}: {int(wrong.sum())} of {wrong.numel()} wrong, {int(one.isnan().sum())} NaN"]
            lines += describe(case, one.cpu(), other.cpu(), wrong.cpu().numpy(), tile_m if name == "dq" else tile_n)
    return [str(case), f"tile_m {tile_m}, tile_n {tile_n}", *lines] if lines else []


def describe(case, found, wanted, wrong, size):
    """Where the faults lie in tiles, and what they look like: factors tell a lost part from one counted twice."""
    batch_size, _, heads, _ = wrong.shape
    for batch in range(batch_size):
        here = wrong[batch]
        if not here.any():
            continue
        history, candidate = (x.numpy() for x in list(case.kinds())[batch])
        rows, columns = here.any((1, 2)), here.any((0, 1))
        kinds = {"history": history, "candidates": candidate, "padding": ~(history | candidate)}
        counts = ", ".join(f"{kind} {int((rows & each).sum())} of {int(each.sum())}" for kind, each in kinds.items())
        yield f"  batch row {batch}: rows {spans(rows)} ({counts})"
        yield f"    heads {spans(here.any((0, 2)))} of {heads}, columns {spans(columns)}"
        for kind, each in kinds.items():
            if (rows & each).any():
                at = np.flatnonzero(each)
                offset = np.flatnonzero(rows & each) - at[0]
                yield f"    {kind}: row offsets mod {size}: {spans(np.isin(np.arange(size), offset % size))}"
                yield f"    {kind}: tiles of {size} rows from its first: {spans(np.bincount(offset // size) > 0)}"
        for row, head, column in np.argwhere(here)[:: max(1, int(here.sum()) // 6)][:6]:
            one, other = float(found[batch, row, head, column]), float(wanted[batch, row, head, column])
            factor = f", factor {one / other:.3f}" if other else ""
            yield f"    row {row} head {head} column {column}: {one:.5f}, wanted {other:.5f}{factor}"
        one, other = found[batch, torch.from_numpy(rows)].flatten(), wanted[batch, torch.from_numpy(rows)].flatten()
        similar = float(torch.nan_to_num(one) @ other / (torch.nan_to_num(one).norm() * other.norm() + 1e-30))
        yield f"    cosine of the wrong rows with what is wanted: {similar:.4f}"


def spans(flags):
    """``[0, 1, 1, 1, 0, 1]`` as ``1-3 5``."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(flags, dtype=int), [0]])))
    parts = [f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in edges.reshape(-1, 2)]
    return " ".join(parts[:12]) + (f" and {len(parts) - 12} more" if len(parts) > 12 else "")
