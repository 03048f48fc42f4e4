"""What the operator refuses, and what it says about it."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attnctl_kernels.contract import Config, Scalar, join_words
from attnctl_kernels.ranker import backward_config as backward
from attnctl_kernels.ranker import config as own


def check_inputs(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, name: str) -> None:
    """``name`` is the argument that ``bounds`` came as: ``bounds``, or ``mask`` for a table of ranges.

    Raises:
        ValueError: shapes, types or strides do not fit.
    """
    tensors = {"q": q, "k": k, "v": v}
    for each, x in tensors.items():
        _check_tensor(each, x, q)
    batch_size, seqlen, num_heads_q, head_dim = q.shape
    if head_dim not in own.HEAD_DIMS:
        raise ValueError(f"head_dim is {head_dim}; the kernel takes {join_words(own.HEAD_DIMS, 'and')}")
    keys = k.shape[1] if name == "mask" else seqlen
    if k.shape != v.shape or k.shape[0] != batch_size or k.shape[1] != keys or k.shape[3] != head_dim:
        wanted = f"seqlen={seqlen}" if name == "bounds" else "seqlen_k"
        raise ValueError(
            f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; both must be (batch_size={batch_size}, "
            f"{wanted}, num_heads_kv, head_dim={head_dim})"
        )
    if k.shape[2] == 0 or num_heads_q % k.shape[2]:
        raise ValueError(f"{num_heads_q} query heads do not divide into {k.shape[2]} key/value heads")
    shape = (batch_size, 4) if name == "bounds" else (batch_size, seqlen, 2)
    if bounds.shape != shape or bounds.dtype != torch.int32 or bounds.device != q.device:
        raise ValueError(
            f"{name} is {tuple(bounds.shape)} {bounds.dtype} on {bounds.device}; it must be {shape} "
            f"torch.int32 on {q.device}"
        )
    if bounds.stride()[-2:] != (shape[-1], 1):  # one table may serve all batch rows
        raise ValueError(f"{name} has strides {bounds.stride()}: pass {name}.clone().contiguous()")


def check_gradient(q: Tensor, k: Tensor, v: Tensor, *, masked: bool, capped: bool) -> None:
    """Raises RuntimeError where a gradient is asked for that there is no kernel for."""
    if not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)):
        return
    missing = ["a mask in place of bounds"] if masked else []
    missing += ["a logit cap"] if capped else []
    missing += [f"head_dim {q.shape[-1]}"] if q.shape[-1] not in backward.HEAD_DIMS else []
    if missing:
        raise RuntimeError(
            f"ranker has no backward pass for {join_words(missing)}: call attention under torch.no_grad(), or detach "
            "its inputs"
        )


def _check_tensor(name: str, x: Tensor, q: Tensor) -> None:
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (batch_size, seqlen, num_heads, head_dim)")
    if str(x.dtype).removeprefix("torch.") not in own.DTYPES or x.dtype != q.dtype:
        raise ValueError(f"{name} is {x.dtype}; q, k and v must all be bfloat16, or all float16")
    if x.device != q.device or x.device.type != "cuda":
        raise ValueError(f"{name} is on {x.device}; q, k and v must be on one CUDA device")
    if x.stride(-1) != 1 or any(stride % 8 for stride in x.stride()[:-1]):
        raise ValueError(
            f"{name} has strides {x.stride()}; the last must be 1 and the others multiples of 8: "
            f"pass {name}.contiguous()"
        )


def check_numbers(**numbers: float | None) -> None:
    """Raises ValueError for what is not positive and finite; None is left alone."""
    for name, value in numbers.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} is {value}; it must be positive and finite")


def write_config(given: Config) -> str:
    """As an operator takes it, which takes no mapping; in steps that a compiler of programs can follow."""
    return " ".join([f"{name}={value}" for name, value in given.items()])


def read_config(text: str) -> dict[str, Scalar]:
    words = {"True": True, "False": False}
    parts = (each.split("=", 1) for each in text.split())
    return {name: int(value) if value.isdecimal() else words.get(value, value) for name, value in parts}


@cache
def complete(head_dim: int, ranges: bool, text: str) -> str:
    """What is written, with the default's values where it leaves something out.

    Raises:
        ValueError: a name or a value that the kernel does not have, or too much shared memory.
    """
    names, given = tuple(own.ForwardConfig.model_fields), read_config(text)
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"config: unknown {', '.join(unknown)}; known are {', '.join(names)}")
    default = own.default_config(head_dim, ranges=ranges)
    config = {**default, **given}
    allowed: dict[str, tuple[Any, ...]] = {
        "tile_m": own.TILES_M,
        "tile_n": own.TILES_N,
        "stages": own.STAGES,
        "schedule": own.SCHEDULES,
    }
    for name, values in allowed.items():
        if config[name] not in values:
            raise ValueError(f"config: {name} is {config[name]}; it must be one of {', '.join(map(str, values))}")
    used = own.smem_bytes(head_dim, config, ranges=ranges)
    if used > own.SMEM_LIMIT:
        raise ValueError(
            f"config: tile_m {config['tile_m']}, tile_n {config['tile_n']} and stages {config['stages']} take {used} "
            f"bytes of shared memory, the limit is {own.SMEM_LIMIT}; the default is {default}"
        )
    return write_config({name: config[name] for name in names})
