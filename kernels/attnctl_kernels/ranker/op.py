"""The kernel as a PyTorch operator, for programs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from attnctl_kernels.contract import Config, Dtype, Mask, PassName, Problem, Task
from attnctl_kernels.ranker import config as own


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: Tensor,
    config: Config | None = None,
    *,
    softmax_scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """History/candidate attention with bounds per batch row.

    Row ``i`` of batch row ``b`` is history where ``bounds[b, 0] <= i < bounds[b, 1]``, and else a candidate where
    ``bounds[b, 2] <= i < bounds[b, 3]``. History sees all history; a candidate sees all history and itself; any other
    row sees nothing: its output is 0 and its LSE minus infinity. What no row sees may hold anything, NaN included.
    Bounds are read on the device, without a synchronisation, and clipped to the sequence.

    Args:
        q: ``(batch_size, seqlen, num_heads_q, head_dim)``, bfloat16 or float16, head_dim 64 or 128.
        k: ``(batch_size, seqlen, num_heads_kv, head_dim)``; ``num_heads_kv`` divides ``num_heads_q``.
        v: as ``k``.
        bounds: ``(batch_size, 4)`` int32.
        config: as in a profile of family ``ranker``; what it leaves out is the default. None: what `attnctl tune` found
            on this device for this shape or the nearest one, see ``docs/runtime.md``; else the default, with a warning.
        softmax_scale: of the scores; ``1 / sqrt(head_dim)`` if None. Positive.
        return_lse: also return the logarithm of each row's sum, float32 ``(batch_size, num_heads_q, seqlen)``.

    Raises:
        ValueError: shapes, types, strides or the config do not fit.
        RuntimeError: a gradient is asked for, or the device is no Hopper GPU.
    """
    _check(q, k, v, bounds)
    chosen = None if config is None else _config(q.shape[-1], config)
    scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    if not scale > 0 or math.isinf(scale):
        raise ValueError(f"softmax_scale is {scale}; it must be positive and finite")
    out, lse = _forward(q, k, v, bounds, scale, chosen)
    return (out, lse) if return_lse else out


@torch.library.custom_op("attnctl::ranker_forward", mutates_args=(), device_types="cuda")
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: Tensor,
    softmax_scale: float,
    config: Sequence[int] | None,
) -> tuple[Tensor, Tensor]:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.data_ptr() % 16:
            raise ValueError(f"{name} begins {x.data_ptr() % 16} bytes behind a multiple of 16: pass {name}.clone()")
    dtype = str(q.dtype).removeprefix("torch.")
    # Chosen here, where shapes are numbers: a compiled program calls this, and never sees the files.
    chosen = _tuned(q.device, q.shape, k.shape[2], dtype) if config is None else tuple(config)
    kernel = _kernel(q.shape[-1], dtype, *chosen)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
    if q.numel():
        with torch.cuda.device(q.device):
            kernel(q, k, v, out, lse, bounds, softmax_scale, _num_sms(q.device))
    return out, lse


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
    return q.new_empty(q.shape), lse


@cache
def _num_sms(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    if properties.major != 9:
        raise RuntimeError(f"the kernel runs on sm_90 only; {device} is sm_{properties.major}{properties.minor}")
    return int(properties.multi_processor_count)


@cache
def _tuned(device: torch.device, shape: torch.Size, num_heads_kv: int, dtype: Dtype) -> tuple[int, ...]:
    from attnctl.profile.kernel_call import config_of_call  # noqa: PLC0415 - only where nobody chose

    batch_size, seqlen, num_heads_q, head_dim = shape
    problem = Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=seqlen,
        num_heads_q=num_heads_q,
        num_heads_kv=num_heads_kv,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=dtype,
        mask=Mask(pattern="history_candidate"),
    )
    which: PassName = "forward"
    task = Task(family="ranker", version=None, arch="sm_90", pass_name=which, problem=problem)
    name = torch.cuda.get_device_name(device)
    return _config(head_dim, config_of_call(task, name, open_mask=("history_len",)))


@cache
def _kernel(head_dim: int, dtype: str, *values: int) -> Callable[..., None]:
    from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass, which takes seconds

    folder = os.environ.get("ATTNCTL_CACHE_DIR") or Path.home() / ".cache" / "attnctl"
    traits = build.forward_traits(head_dim, dtype, dict(zip(own.ForwardConfig.model_fields, values, strict=True)))
    path, _ = build.forward_object(traits, Path(folder) / "ranker")
    return build.load(path)


def _check(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor) -> None:
    tensors = {"q": q, "k": k, "v": v}
    for name, x in tensors.items():
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
    batch_size, seqlen, num_heads_q, head_dim = q.shape
    if head_dim not in own.HEAD_DIMS:
        raise ValueError(f"head_dim is {head_dim}; the kernel takes {' and '.join(map(str, own.HEAD_DIMS))}")
    if k.shape != v.shape or k.shape[:2] != q.shape[:2] or k.shape[3] != head_dim:
        raise ValueError(
            f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; both must be (batch_size={batch_size}, "
            f"seqlen={seqlen}, num_heads_kv, head_dim={head_dim})"
        )
    if k.shape[2] == 0 or num_heads_q % k.shape[2]:
        raise ValueError(f"{num_heads_q} query heads do not divide into {k.shape[2]} key/value heads")
    if bounds.shape != (batch_size, 4) or bounds.dtype != torch.int32 or bounds.device != q.device:
        raise ValueError(
            f"bounds is {tuple(bounds.shape)} {bounds.dtype} on {bounds.device}; it must be ({batch_size}, 4) "
            f"torch.int32 on {q.device}"
        )
    if not bounds.is_contiguous():
        raise ValueError("bounds is not contiguous: pass bounds.contiguous()")
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors.values()):
        raise RuntimeError(
            "ranker has no backward pass yet: call attention under torch.no_grad(), or detach its inputs"
        )


def _config(head_dim: int, given: Config) -> tuple[int, ...]:
    names = tuple(own.ForwardConfig.model_fields)
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"config: unknown {', '.join(unknown)}; known are {', '.join(names)}")
    config = {**own.default_config(head_dim), **given}
    for name, allowed in (("tile_m", own.TILES_M), ("tile_n", own.TILES_N), ("stages", own.STAGES)):
        if config[name] not in allowed:
            raise ValueError(f"config: {name} is {config[name]}; it must be one of {', '.join(map(str, allowed))}")
    used = own.smem_bytes(head_dim, config)
    if used > own.SMEM_LIMIT:
        raise ValueError(
            f"config: tile_m {config['tile_m']}, tile_n {config['tile_n']} and stages {config['stages']} take {used} "
            f"bytes of shared memory, the limit is {own.SMEM_LIMIT}; the default is {own.default_config(head_dim)}"
        )
    return tuple(config[name] for name in names)
