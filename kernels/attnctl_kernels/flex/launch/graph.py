"""One call of FlexAttention as a graph: the very operator that `torch.compile(flex_attention)` hands to inductor.

Building it here leaves out dynamo, and with it the recompile limit behind which calls silently run eagerly, and
autograd: the backward operator is a graph of its own, so that it is compiled and timed alone.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.attention.flex_attention import BlockMask, noop_mask

from attnctl_kernels.contract import Candidate, Problem, Task
from attnctl_kernels.flex.launch.block_mask import FlexMask
from attnctl_kernels.flex.options import kernel_options

# The package of the same name exports the operator under the module's name.
_operators = importlib.import_module("torch._higher_order_ops.flex_attention")

OPERANDS = {"forward": ("q", "k", "v"), "backward": ("q", "k", "v", "out", "lse", "dout")}


def by_head(x: Tensor) -> Tensor:
    """``(B, S, H, D)`` as the view ``(B, H, S, D)`` that FlexAttention takes, and back."""
    return x.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced call. Its inputs are the operands, the mask's lists and the mask's tables, in this order."""

    module: fx.GraphModule
    inputs: list[Tensor]  # fake: shapes, strides and device
    mode: FakeTensorMode


def trace(task: Task, candidate: Candidate, mask: FlexMask, device: torch.device) -> Graph:
    """The graph of one call on ``device``, which need not exist."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode, torch.no_grad():
        operands = _operands(task.problem, task.pass_name, device)
        arrays = [
            torch.empty(array.shape, dtype=getattr(torch, str(array.dtype)), device=device)
            for array in (*mask.lists.values(), *mask.tables)
        ]
        inputs = [*operands, *arrays]
        module = make_fx(_function(task, candidate, mask), decomposition_table=select_decomp_table())(*inputs)
    module.graph.eliminate_dead_code()
    module.recompile()
    return Graph(module, inputs, mode)


def _operands(problem: Problem, pass_name: str, device: torch.device) -> list[Tensor]:
    dtype = getattr(torch, problem.dtype)

    def rows(seqlen: int, heads: int, dim: int) -> Tensor:
        return by_head(torch.empty(problem.batch_size, seqlen, heads, dim, dtype=dtype, device=device))

    q = rows(problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = rows(problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    v = rows(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v)
    if pass_name == "forward":  # noqa: S105 - not a password
        return [q, k, v]
    out = rows(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v)
    lse = torch.empty(problem.batch_size, problem.num_heads_q, problem.seqlen_q, device=device)
    return [q, k, v, out, lse, torch.empty_like(out)]


def _function(task: Task, candidate: Candidate, mask: FlexMask) -> Callable[..., tuple[Tensor, ...]]:
    problem, operands = task.problem, len(OPERANDS[task.pass_name])
    scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)

    def rest(inputs: Sequence[Tensor]) -> tuple[Any, ...]:
        """What both operators take after the functions: mask, scale, options, and tensors that the functions use."""
        lists, tables = inputs[operands : operands + len(mask.lists)], inputs[operands + len(mask.lists) :]
        chosen = kernel_options(candidate.config, inputs[0].device.type)
        return _block_mask(mask, lists), scale, chosen, (), tuple(tables)

    def forward(*inputs: Tensor) -> tuple[Tensor, ...]:
        arguments = rest(inputs)
        out, lse, _ = _operators.flex_attention(*inputs[:operands], _score, *arguments)
        return (out, lse) if arguments[2]["OUTPUT_LOGSUMEXP"] else (out,)

    def backward(*inputs: Tensor) -> tuple[Tensor, ...]:
        no_lse_gradient = None
        saved = (*inputs[:operands], no_lse_gradient)
        return tuple(_operators.flex_attention_backward(*saved, _score, _joint, *rest(inputs))[:3])

    return forward if task.pass_name == "forward" else backward  # noqa: S105 - not a password


def _score(score: Tensor, *_: Tensor) -> Tensor:
    return score


def _joint(_score: Tensor, _b: Tensor, _h: Tensor, _q: Tensor, _k: Tensor, gradient: Tensor) -> list[Tensor | None]:
    """The gradient of :func:`_score`, with nothing for the four indices. Autograd would need a real device for it."""
    return [gradient, None, None, None, None]


def _block_mask(mask: FlexMask, lists: Sequence[Tensor]) -> tuple[Any, ...]:
    none = dict.fromkeys(("full_kv_num_blocks", "full_kv_indices", "full_q_num_blocks", "full_q_indices"))
    predicate = mask.sees

    def mask_mod(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor, *tables: Tensor) -> Tensor:
        return predicate(q, k, tables)

    return BlockMask(
        seq_lengths=mask.seqlens,
        **{**none, **dict(zip(mask.lists, lists, strict=True))},
        BLOCK_SIZE=mask.block_size,
        mask_mod=mask_mod if predicate else noop_mask,
    ).as_tuple()
