"""Tensors for flash-attn-4's entries: the mask, as predicate and block lists, and fake inputs to compile with."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from attnctl_kernels import masks
from attnctl_kernels.contract import Candidate, Inputs, Problem, Task
from attnctl_kernels.fa4 import predicates
from attnctl_kernels.fa4.mask_form import native_arguments, uses_lists


def mask_arguments(task: Task, candidate: Candidate, device: torch.device) -> dict[str, Any]:
    """The mask as flash-attn-4 takes it: its own form, or element predicate, tables and block lists."""
    problem = task.problem
    if not uses_lists(problem, candidate.config):
        return native_arguments(problem)
    predicate = predicates.predicate(problem)
    assert predicate is not None, problem.mask.pattern
    return {
        "mask_mod": _mask_mod(problem, predicate),
        "block_sparse_tensors": block_lists(task, candidate, device),
        "aux_tensors": [_upload(masks.np.asarray(table, dtype="int32"), device) for table in predicate.tables] or None,
    }


def block_lists(task: Task, candidate: Candidate, device: torch.device) -> Any:
    """The lists of full and partial blocks. Forward lists key blocks by query block, backward the other way."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch  # noqa: PLC0415 - after interface() has set the environment

    problem = task.problem
    block = candidate.sparse_block or (int(candidate.config["tile_m"]), int(candidate.config["tile_n"]))
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block)
    backward = task.pass_name == "backward"  # noqa: S105 - not a password
    lists = masks.block_lists(masks.transpose(classes) if backward else classes)
    # One mask for all batches and heads: the leading dimensions of length 1 are broadcast.
    tensors = [_upload(array[None, None], device) for array in lists]
    return BlockSparseTensorsTorch(*tensors, block_size=block)


def _mask_mod(problem: Problem, predicate: predicates.Predicate) -> Callable[..., Any]:
    from cutlass import Int32  # noqa: PLC0415
    from flash_attn.cute import utils  # noqa: PLC0415

    def mask_mod(_batch: Any, _head: Any, q: Any, k: Any, _seqlen: Any, tables: Any) -> Any:
        def look(table: int, index: Any) -> Any:
            return utils.scalar_to_ssa(tables[table][utils.ssa_to_scalar(index)], Int32)

        return predicate.visible(q, k, look)

    # The kernel's cache key. Left to itself it would hash this function alone, and not what it closes over.
    identity = (problem.mask.model_dump_json(), problem.seqlen_k - problem.seqlen_q, _predicate_sources())
    mask_mod.__cute_hash__ = hashlib.sha256(repr(identity).encode()).hexdigest()
    return mask_mod


@cache
def _predicate_sources() -> str:
    return inspect.getsource(predicates) + inspect.getsource(masks)


def _upload(array: Any, device: torch.device) -> torch.Tensor:
    from torch._guards import active_fake_mode  # noqa: PLC0415

    tensor = torch.empty(array.shape, dtype=torch.int32, device=device)
    if active_fake_mode() is None:
        # Copied, so that strides are those of a fake tensor. NumPy gives new axes a stride of 0, and PyTorch keeps it:
        # with one batch and head the kernel's key would call them broadcast, and miss what was compiled ahead.
        tensor.copy_(torch.from_numpy(masks.np.ascontiguousarray(array)))
    return tensor


def fake_inputs(task: Task) -> Inputs:
    """Of the task's shapes, inside a fake mode; with what a forward pass leaves for a backward task."""
    problem = task.problem

    def empty(seqlen: int, heads: int, dim: int) -> torch.Tensor:
        shape = (problem.batch_size, seqlen, heads, dim)
        return torch.empty(shape, dtype=getattr(torch, problem.dtype), device="cuda:0")

    q = empty(problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = empty(problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    v = empty(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v)
    if task.pass_name == "forward":  # noqa: S105 - not a password
        return Inputs(q, k, v)
    out, dout = (empty(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v) for _ in range(2))
    return Inputs(q, k, v, out=out, lse=empty_lse(problem, q.device), dout=dout)


def empty_lse(problem: Problem, device: torch.device) -> torch.Tensor:
    shape = (problem.batch_size, problem.num_heads_q, problem.seqlen_q)
    return torch.empty(shape, dtype=torch.float32, device=device)
