"""A trial: one set of input values, and what the outputs must be for it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnctl.worker.compare import Deviation, deviation
from attnctl_kernels import masks, reference
from attnctl_kernels.contract import Inputs, Mask, PassName, Problem

_RMS_MULTIPLE = 3.0  # of the error that plain PyTorch makes at the same dtype
_ROW_MULTIPLE = 4.0
_FIELDS = ("q", "k", "v", "out", "lse", "dout")

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Heads:
    """The (batch, key head) pairs that are compared; None: all."""

    pairs: tuple[Pair, ...] | None
    num_heads_kv: int
    fraction: float

    @classmethod
    def choose(cls, problem: Problem, pass_name: PassName, budget_flop: float) -> Heads:
        """As many as ``budget_flop`` dense operations allow: the first, the last, and seeded ones between."""
        total = problem.batch_size * problem.num_heads_kv
        dense = problem.model_copy(update={"mask": Mask()})
        count = max(2, int(budget_flop / (flop(dense, pass_name) / total)))
        if count >= total:
            return cls(None, problem.num_heads_kv, 1.0)
        between = random.Random(0).sample(range(1, total - 1), count - 2)  # noqa: S311 - not cryptography
        chosen = sorted((0, total - 1, *between))
        return cls(tuple(divmod(index, problem.num_heads_kv) for index in chosen), problem.num_heads_kv, count / total)

    def take(self, name: str, tensor: Tensor) -> Tensor:
        """The compared part of a tensor, the query heads of a pair together, as a batch."""
        if self.pairs is None:
            return tensor
        if name == "lse":  # (batch, heads, rows)
            grouped = tensor.unflatten(1, (self.num_heads_kv, -1))
            return torch.stack([grouped[batch, head] for batch, head in self.pairs])
        grouped = tensor.unflatten(2, (self.num_heads_kv, -1))
        return torch.stack([grouped[batch, :, head] for batch, head in self.pairs])


@dataclass(frozen=True, slots=True)
class Trial:
    """Kernels never get these tensors: they get copies, so that a kernel that writes its inputs is seen."""

    name: str
    values: Inputs
    expected: Mapping[str, Tensor]  # of the compared heads, more precise than the outputs
    baseline: Mapping[str, Deviation]
    tolerance: Mapping[str, float]
    row_tolerance: Mapping[str, float]

    @classmethod
    def of(cls, name: str, values: Inputs, problem: Problem, heads: Heads) -> Trial:
        """Compute the reference, and how far plain PyTorch at the same dtype is from it."""
        if values.dout is not None:
            values = _with_forward(values, problem)
        expected = outputs(values, problem, heads)
        plain = outputs(values, problem, heads, dtype=values.q.dtype)
        baseline = {name: deviation(plain[name], want) for name, want in expected.items()}
        # What backward kernels are given has been rounded, which is the same error for all of them, beside their own.
        given = expected if values.dout is None else outputs(values, problem, heads, given=True)
        cost = {name: deviation(given[name], want) for name, want in expected.items()}
        floor = torch.finfo(values.q.dtype).eps
        return cls(
            name=name,
            values=values,
            expected=expected,
            baseline=baseline,
            tolerance={name: cost[name].rms + max(_RMS_MULTIPLE * each.rms, floor) for name, each in baseline.items()},
            row_tolerance={
                name: cost[name].worst_row + max(_ROW_MULTIPLE * each.worst_row, 2 * floor)
                for name, each in baseline.items()
            },
        )

    def copy_to(self, live: Inputs) -> None:
        for mine, theirs in _both(self.values, live).values():
            theirs.copy_(mine)

    def changed(self, live: Inputs) -> list[str]:
        """Names of inputs that are no longer what this trial put there."""
        return [name for name, (mine, theirs) in _both(self.values, live).items() if not torch.equal(mine, theirs)]

    def seal(self) -> tuple[int, ...]:
        """Sums over all bits that must never change: no kernel is given these tensors."""
        tensors = [mine for mine, _ in _both(self.values, self.values).values()] + list(self.expected.values())
        return tuple(int(each.contiguous().view(_BITS[each.element_size()]).sum(dtype=torch.int64)) for each in tensors)

    def fresh_inputs(self) -> Inputs:
        return Inputs(**{name: mine.clone() for name, (mine, _) in _both(self.values, self.values).items()})


def outputs(
    values: Inputs, problem: Problem, heads: Heads, dtype: torch.dtype | None = None, *, given: bool = False
) -> dict[str, Tensor]:
    """The reference of the compared heads: gradients if there is a dO. With ``dtype`` its matrix products are in it.

    ``given``: with delta from the output that a backward kernel gets.
    """
    q, k, v = (heads.take(name, getattr(values, name)) for name in ("q", "k", "v"))
    if values.dout is None:
        out, lse = reference.forward(q, k, v, problem.mask, problem.softmax_scale, dtype=dtype)
        return {"out": out, "lse": lse}
    dout, out = (heads.take(name, getattr(values, name)) for name in ("dout", "out"))
    found = reference.backward(
        q, k, v, dout, problem.mask, problem.softmax_scale, dtype=dtype, out=out if given else None
    )
    return dict(zip(("dq", "dk", "dv"), found, strict=True))


def flop(problem: Problem, pass_name: PassName) -> float:
    """Operations of the matrix products over visible pairs: two per multiply-add."""
    pairs = masks.count_visible(problem.mask, problem.seqlen_q, problem.seqlen_k)
    dims = {
        "forward": problem.head_dim + problem.head_dim_v,
        "backward": 3 * problem.head_dim + 2 * problem.head_dim_v,  # scores again, dQ, dK; dP, dV
    }
    return 2.0 * pairs * dims[pass_name] * problem.batch_size * problem.num_heads_q


def _with_forward(values: Inputs, problem: Problem) -> Inputs:
    """What a backward kernel gets from a right forward pass."""
    out, lse = reference.forward(values.q, values.k, values.v, problem.mask, problem.softmax_scale)
    return replace(values, out=out.to(values.q.dtype).contiguous(), lse=lse.float().contiguous())


def _both(mine: Inputs, theirs: Inputs) -> dict[str, tuple[Tensor, Tensor]]:
    return {name: (getattr(mine, name), getattr(theirs, name)) for name in _FIELDS if getattr(mine, name) is not None}
