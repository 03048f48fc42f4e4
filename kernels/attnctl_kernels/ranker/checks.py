"""What the operator refuses, and what it says about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from attnctl_kernels.contract import Config, Scalar, join_words
from attnctl_kernels.ranker import config as own


def check_tensors(**tensors: Tensor) -> None:
    """Each for itself, and of one type and device with the first.

    Raises:
        ValueError: one is no tensor, or its shape, type, device or strides do not fit.
    """
    first, *_ = tensors.values()
    for name, x in tensors.items():
        _check_tensor(name, x, first)


def check_shapes(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, name: str) -> None:
    """``name`` is the argument that ``bounds`` came as: ``bounds``, or ``mask`` for a table of ranges.

    Raises:
        ValueError: shapes do not fit each other, or the bounds do not.
    """
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
    if not isinstance(bounds, Tensor):
        raise ValueError(f"{name} is a {type(bounds).__name__}; it must be a tensor {shape} torch.int32 on {q.device}")  # noqa: TRY004
    if bounds.shape != shape or bounds.dtype != torch.int32 or bounds.device != q.device:
        raise ValueError(
            f"{name} is {tuple(bounds.shape)} {bounds.dtype} on {bounds.device}; it must be {shape} "
            f"torch.int32 on {q.device}"
        )
    rows, columns = bounds.shape[-2:]
    if bounds.stride(-1) != 1 or (rows > 1 and bounds.stride(-2) != columns):  # one table may serve all batch rows
        raise ValueError(f"{name} has strides {bounds.stride()}: pass {name}.clone().contiguous()")


def asks_gradient(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def check_gradient(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises RuntimeError where a gradient is asked for that there is no kernel for."""
    if not torch.compiler.is_compiling() and any(map(_has_tangent, (q, k, v))):
        raise RuntimeError("ranker has no forward-mode derivative: PyTorch would take it for 0; use backward()")


def _has_tangent(x: Tensor) -> bool:
    return unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]


def _check_tensor(name: str, x: Tensor, q: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; q, k and v must be tensors")  # noqa: TRY004 - as for the rest
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (batch_size, seqlen, num_heads, head_dim)")
    if str(x.dtype).removeprefix("torch.") not in own.DTYPES or x.dtype != q.dtype:
        raise ValueError(f"{name} is {x.dtype}; q, k and v must all be bfloat16, or all float16")
    if x.device != q.device or x.device.type != "cuda":
        raise ValueError(f"{name} is on {x.device}; q, k and v must be on one CUDA device")
    strides = [stride for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size > 1]
    if x.stride(-1) != 1 or any(stride % 8 for stride in strides):
        raise ValueError(
            f"{name} has strides {x.stride()}; the last must be 1 and the others multiples of 8: "
            f"pass {name}.contiguous()"
        )


def check_numbers(**numbers: float | None) -> None:
    """Raises ValueError for what is not positive and finite; None is left alone."""
    for name, value in numbers.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; it must be positive and finite")


def aligned(x: Tensor) -> Tensor:
    """``x`` with strides that the kernel can take also where they mean nothing: of dimensions with one element."""
    if all(size > 1 or stride % 8 == 0 for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True)):
        return x
    whole = x.numel()
    strides = [stride if size > 1 else whole for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True)]
    return x.as_strided(x.shape, (*strides, 1))


def write_config(given: Config) -> str:
    """As an operator takes it, which takes no mapping; in steps that a compiler of programs can follow.

    Raises:
        ValueError: a value is none of a config.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"config is a {type(given).__name__}; it must be a mapping")  # noqa: TRY004 - as for the rest
    words = []
    for name, value in given.items():
        known = int(value) if type(value) is int else value  # a compiler would keep a symbol for what varies
        word = f"{name}={known}"
        if isinstance(value, (dict, list, tuple)) or " " in word:
            raise ValueError(f"config: {name} is {value}; it must be a number, a word or a bool, of one pass")
        words.append(word)
    return " ".join(words)


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
        **dict.fromkeys(("turns", "persistent", "balanced"), (False, True)),
    }
    for name, values in allowed.items():
        if config[name] not in values:
            raise ValueError(f"config: {name} is {config[name]}; it must be one of {', '.join(map(str, values))}")
    if (most := own.most_keys(config)) < int(config["tile_n"]):
        raise ValueError(f"config: tile_n is {config['tile_n']}; with tile_m {config['tile_m']} it is at most {most}")
    used = own.smem_bytes(head_dim, config, ranges=ranges)
    if used > own.SMEM_LIMIT:
        raise ValueError(
            f"config: tile_m {config['tile_m']}, tile_n {config['tile_n']} and stages {config['stages']} take {used} "
            f"bytes of shared memory, the limit is {own.SMEM_LIMIT}; the default is {default}"
        )
    return write_config({name: config[name] for name in names})
