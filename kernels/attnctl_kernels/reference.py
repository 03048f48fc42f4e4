"""The oracle: masked softmax attention and its gradients, more precise than any kernel that is checked against it.

Tensors are ``(batch_size, seqlen, num_heads, head_dim)``, LSE is ``(batch_size, num_heads_q, seqlen_q)``; several
query heads may share one key head. A row without a visible key has output 0, LSE ``-inf`` and zero gradients. Scores
are computed a piece at a time, so that long sequences fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from attnctl_kernels import masks
from attnctl_kernels.contract import Mask

_CPU_SCORES_BYTES = 1 << 25
_GPU_SCORES_SHARE = 1 / 8  # of the free memory; a piece of the backward pass holds five arrays of this size


def visible(mask: Mask, q_index: Tensor, k_index: Tensor, seqlen_q: int, seqlen_k: int) -> Tensor:
    """``masks.visible`` for tensors, on the device of the indices."""
    return masks.pattern(mask, seqlen_q, seqlen_k).sees(
        q_index, k_index, lambda table: torch.as_tensor(table, device=q_index.device)
    )


def reference_dtype(dtype: torch.dtype) -> torch.dtype:
    """What checks results of ``dtype``: the next more precise type."""
    return torch.float64 if dtype in (torch.float32, torch.float64) else torch.float32


@torch.no_grad()
def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    scale: float | None = None,
    *,
    rows: Tensor | Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Output and LSE, of all query rows or of ``rows`` in their order.

    ``dtype`` is that of the matrix products and of the output; None: ``reference_dtype`` of the inputs.
    """
    call = _Attention.of(q=q, k=k, v=v, mask=mask, scale=scale, dtype=dtype, rows=rows)
    out = call.q.new_empty(*call.q.shape[:-1], v.shape[-1])
    lse = torch.empty(call.q.shape[:-1], dtype=call.precise, device=q.device)
    with _full_precision():
        for heads, part in call.pieces():
            probabilities, lse[heads, :, part] = call.softmax(heads, part)
            out[heads, :, part] = call.times(probabilities.to(call.dtype), call.v[heads])
    return _from_heads(out, q.shape[0]), lse.reshape(q.shape[0], q.shape[2], -1)


@torch.no_grad()
def backward(  # noqa: PLR0917 - in the order of forward
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dout: Tensor,
    mask: Mask,
    scale: float | None = None,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``dq``, ``dk``, ``dv`` for the gradient ``dout`` of the output; ``dtype`` as in :func:`forward`.

    With ``out``, the output as it was rounded, delta is the sum of ``dout * out``, as kernels take it.
    """
    call = _Attention.of(q=q, k=k, v=v, mask=mask, scale=scale, dtype=dtype)
    dout_heads = _to_heads(dout, k.shape[2]).to(call.dtype)
    out_heads = None if out is None else _to_heads(out, k.shape[2]).to(call.precise)
    dq = torch.empty_like(call.q)
    dk, dv = (torch.zeros_like(part, dtype=call.precise) for part in (call.k, call.v))
    with _full_precision():
        for heads, part in call.pieces():
            rows_q, rows_dout = call.q[heads, :, part], dout_heads[heads, :, part]
            probabilities, _ = call.softmax(heads, part)
            dprobabilities = call.times(rows_dout, call.v[heads].mT).to(call.precise)
            if out_heads is None:
                delta = (probabilities * dprobabilities).sum(-1, keepdim=True)
            else:
                delta = (rows_dout * out_heads[heads, :, part]).sum(-1, keepdim=True)
            dscores = dprobabilities.sub_(delta).mul_(probabilities).mul_(call.scale).to(call.dtype)
            dq[heads, :, part] = call.times(dscores, call.k[heads])
            dk[heads] += dscores.flatten(1, 2).mT @ rows_q.flatten(1, 2)
            dv[heads] += probabilities.to(call.dtype).flatten(1, 2).mT @ rows_dout.flatten(1, 2)
    return tuple(_from_heads(part.to(call.dtype), q.shape[0]) for part in (dq, dk[:, None], dv[:, None]))


def plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    scale: float | None = None,
    *,
    rows: Tensor | Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`forward` with matrix products in the inputs' own dtype: its error is what that dtype costs anybody."""
    return forward(q, k, v, mask, scale, rows=rows, dtype=q.dtype)


def plain_backward(  # noqa: PLR0917
    q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`backward` with matrix products in the inputs' own dtype."""
    return backward(q, k, v, dout, mask, scale, dtype=q.dtype)


@dataclass(frozen=True)
class _Attention:
    """One call with its tensors by key head: ``q [B * Hkv, group, rows, D]``, ``k [B * Hkv, seqlen_k, D]``."""

    q: Tensor
    k: Tensor
    v: Tensor
    pattern: masks.Pattern
    rows: Tensor  # the index of each query row
    scale: float
    dtype: torch.dtype  # of the matrix products
    precise: torch.dtype  # of the softmax and of sums over pieces: never below float32

    @classmethod
    def of(
        cls,
        *,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        scale: float | None,
        dtype: torch.dtype | None,
        rows: Tensor | Sequence[int] | None = None,
    ) -> _Attention:
        dtype = dtype or reference_dtype(q.dtype)
        index = torch.arange(q.shape[1]) if rows is None else torch.as_tensor(rows)
        index = index.to(q.device)
        num_heads_kv = k.shape[2]
        return cls(
            q=_to_heads(q if rows is None else q[:, index], num_heads_kv).to(dtype),
            k=_to_heads(k, num_heads_kv)[:, 0].to(dtype),
            v=_to_heads(v, num_heads_kv)[:, 0].to(dtype),
            pattern=masks.pattern(mask, q.shape[1], k.shape[1]),
            rows=index,
            scale=1 / math.sqrt(q.shape[-1]) if scale is None else scale,
            dtype=dtype,
            precise=torch.promote_types(dtype, torch.float32),
        )

    def pieces(self) -> Iterator[tuple[slice, slice]]:
        """Slices of heads and of rows whose scores fit into memory together."""
        if self.q.is_cuda:
            budget = int(torch.cuda.mem_get_info(self.q.device)[0] * _GPU_SCORES_SHARE)
        else:
            budget = _CPU_SCORES_BYTES
        num_heads, group, num_rows, _ = self.q.shape
        row_bytes = group * self.k.shape[1] * self.precise.itemsize
        rows = min(max(1, budget // row_bytes), num_rows)
        heads = max(1, budget // (row_bytes * rows))
        for head in range(0, num_heads, heads):
            for row in range(0, num_rows, rows):
                yield slice(head, head + heads), slice(row, row + rows)

    def softmax(self, heads: slice, part: slice) -> tuple[Tensor, Tensor]:
        """Probabilities ``[heads, group, rows, seqlen_k]`` and LSE of a piece, both precise."""
        scores = self.times(self.q[heads, :, part], self.k[heads].mT).to(self.precise).mul_(self.scale)
        keys = torch.arange(self.k.shape[1], device=self.k.device)
        seen = self.pattern.sees(
            self.rows[part, None], keys, lambda table: torch.as_tensor(table, device=self.k.device)
        )
        scores.masked_fill_(~seen, -torch.inf)
        largest = scores.amax(-1, keepdim=True)
        largest.masked_fill_(largest == -torch.inf, 0)  # a row without keys: exp(-inf - 0) = 0
        weights = scores.sub_(largest).exp_()
        total = weights.sum(-1, keepdim=True)
        lse = (largest + total.log()).squeeze(-1)
        return weights.div_(total.masked_fill(total == 0, 1)), lse

    @staticmethod
    def times(left: Tensor, right: Tensor) -> Tensor:
        """``[heads, group, rows, x] @ [heads, x, y]``: the query heads of a group share the right side."""
        return (left.flatten(1, 2) @ right).unflatten(1, left.shape[1:3])


def _to_heads(x: Tensor, num_heads_kv: int) -> Tensor:
    """``(B, S, H, D)`` to ``[B * Hkv, H / Hkv, S, D]``."""
    return x.unflatten(2, (num_heads_kv, -1)).permute(0, 2, 3, 1, 4).flatten(0, 1)


def _from_heads(x: Tensor, batch_size: int) -> Tensor:
    """The inverse of :func:`_to_heads`."""
    return x.unflatten(0, (batch_size, -1)).permute(0, 3, 1, 2, 4).flatten(2, 3)


@contextmanager
def _full_precision() -> Iterator[None]:
    """float32 matrix products in float32: no TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
