"""The kernel as a PyTorch operator, for programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache

import torch
from torch import Tensor

from attnctl_kernels.contract import Config, Mask
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker import gradient
from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.checks import (
    aligned,
    asks_gradient,
    check_gradient,
    check_numbers,
    check_shapes,
    check_tensors,
    complete,
    read_config,
    write_config,
)
from attnctl_kernels.ranker.ranges import ranges
from attnctl_kernels.ranker.tuned import HISTORY, name_of, tuned


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: Tensor | None = None,
    config: Config | None = None,
    *,
    mask: Mask | Tensor | None = None,
    backward_config: Config | None = None,
    softmax_scale: float | None = None,
    logit_cap: float | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of history and candidates with ``bounds`` per batch row, or of rows that see one range of keys each.

    With bounds, row ``i`` of batch row ``b`` is history where ``bounds[b, 0] <= i < bounds[b, 1]``, and else a
    candidate where ``bounds[b, 2] <= i < bounds[b, 3]``. History sees all history; a candidate sees all history and
    itself; any other row sees nothing: its output is 0 and its LSE minus infinity. What no row sees may hold anything,
    NaN included. Bounds are read on the device, without a synchronisation, and clipped to the sequence.

    Args:
        q: ``(batch_size, seqlen_q, num_heads_q, head_dim)``, bfloat16 or float16, head_dim 64, 96, 128, 192 or 256.
        k: ``(batch_size, seqlen_k, num_heads_kv, head_dim)``; ``num_heads_kv`` divides ``num_heads_q``.
        v: as ``k``.
        bounds: ``(batch_size, 4)`` int32; as many keys as queries.
        config: as in a profile of family ``ranker``; what it leaves out is the default. None: what `attnctl tune` found
            on this device for this shape or the nearest one, see ``docs/runtime.md``; else the default, with a warning.
        mask: in place of bounds. A pattern, such as ``Mask(pattern="sliding_window", window=1024)``: any but
            ``history_candidate`` and ``blocks``. Or its table, as :func:`visible_ranges` makes it: in a compiled
            program. Values that a tile's rows do not see, though they lie between keys that they see, must be finite;
            where a gradient is asked for, all inputs.
        backward_config: likewise, of the backward pass, which there is at head_dim 64, 96 and 128.
        softmax_scale: of the scores; ``1 / sqrt(head_dim)`` if None. Positive.
        logit_cap: scaled scores ``x`` become ``logit_cap * tanh(x / logit_cap)``, with the hardware's tanh. Positive.
        return_lse: also return the logarithm of each row's sum, float32 ``(batch_size, num_heads_q, seqlen_q)``,
            which is differentiated as the output is.

    Raises:
        ValueError: shapes, types, strides or the config do not fit.
        RuntimeError: a gradient is asked for that there is no kernel for, or the device is no Hopper GPU.
    """
    seen = bounds if mask is None else mask
    if seen is None or (bounds is not None and mask is not None):
        raise ValueError("give either bounds, for history and candidates, or mask")
    check_tensors(q=q, k=k, v=v)
    if isinstance(seen, Mask):
        seen = visible_ranges(seen, q.shape[1], k.shape[1], q.device)
    if mask is not None and isinstance(seen, Tensor) and seen.ndim == 3 and seen.shape[0] == 1:
        seen = seen.expand(q.shape[0], -1, -1)
    check_shapes(q, k, v, seen, "bounds" if mask is None else "mask")
    scale = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
    check_numbers(softmax_scale=scale, logit_cap=logit_cap)
    check_gradient(q, k, v)
    chosen, chosen_backward = (None if each is None else write_config(each) for each in (config, backward_config))
    if isinstance(mask, Mask):  # the operators get its table, for which nothing is tuned
        chosen = tuned("forward", q, k, mask) if chosen is None else chosen
        if chosen_backward is None and asks_gradient(q, k, v):
            chosen_backward = tuned("backward", q, k, mask)
    out, lse = _forward(q, k, v, seen, scale, logit_cap, chosen, chosen_backward)
    return (out, lse) if return_lse else out


@lru_cache(maxsize=64)
def visible_ranges(mask: Mask, seqlen_q: int, seqlen_k: int, device: torch.device) -> Tensor:
    """The table of a mask pattern: ``(1, seqlen_q, 2)`` int32, ``[begin, end)`` of the keys that each row sees.

    A table of one's own may have any ranges of which neither end ever falls from one row to the next; its first
    dimension is 1 or the batch size.

    Raises:
        ValueError: the mask lacks a fact, contradicts the lengths, or its rows do not see one range each.
    """
    return torch.from_numpy(ranges(mask, seqlen_q, seqlen_k))[None].to(device)


@torch.library.custom_op("attnctl::ranker_forward", mutates_args=(), device_types="cuda")
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: Tensor,
    softmax_scale: float,
    logit_cap: float | None,
    config: str | None,
    backward_config: str | None,
) -> tuple[Tensor, Tensor]:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.data_ptr() % 16:
            raise ValueError(f"{name} begins {x.data_ptr() % 16} bytes behind a multiple of 16: pass {name}.clone()")
    by_ranges = bounds.ndim == 3
    # Chosen here, where shapes are numbers: a compiled program calls this, and sees no files.
    if config is None and not by_ranges:
        config = tuned("forward", q, k, HISTORY)
    config = complete(q.shape[-1], by_ranges, config or "")
    if backward_config is not None:
        gradient.complete(q.shape[-1], backward_config)  # rather than when the gradients are asked for
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
    if not (q.numel() and k.numel()):  # rows without a key, if there are any
        return out.zero_(), lse.fill_(-math.inf)
    kernel, tile_m = _kernel(q.shape[-1], q.dtype, by_ranges, logit_cap is not None, config)
    q, k, v = aligned(q), aligned(k), aligned(v)
    bounds = bounds if by_ranges else bounds.as_strided(bounds.shape, (4, 1))  # a single row may have any stride
    with torch.cuda.device(q.device):
        order = None
        if tile_m is not None:
            order = torch.empty(own.tile_count(tile_m, *q.shape[:3]), dtype=torch.int32, device=q.device)
        kernel(q, k, v, out, lse, bounds, order, softmax_scale, logit_cap, _num_sms(q.device))
    return out, lse


@_forward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds: Tensor,
    softmax_scale: float,
    logit_cap: float | None,
    config: str | None,
    backward_config: str | None,
) -> tuple[Tensor, Tensor]:
    head_dim = int(q.shape[-1])  # a kernel is made for one, also where shapes are symbols
    complete(head_dim, bounds.ndim == 3, config or "")  # a config that does not fit fails here, too
    if backward_config is not None:
        gradient.complete(head_dim, backward_config)
    lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
    return q.new_empty(q.shape), lse


gradient.differentiate(_forward, ("q", "k", "v", "bounds", "softmax_scale", "logit_cap", "config", "backward_config"))


@cache
def _num_sms(device: torch.device) -> int:
    properties = torch.cuda.get_device_properties(device)
    if properties.major != 9:
        raise RuntimeError(f"the kernel runs on sm_90 only; {device} is sm_{properties.major}{properties.minor}")
    return int(properties.multi_processor_count)


@cache
def _kernel(
    head_dim: int, dtype: torch.dtype, by_ranges: bool, capped: bool, config: str
) -> tuple[Callable[..., None], int | None]:
    """The kernel, and the rows of its tiles if it needs room for a list of them."""
    from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass, which takes seconds

    traits = build.forward_traits(head_dim, name_of(dtype), read_config(config), ranges=by_ranges, capped=capped)
    path, _ = build.forward_object(traits, kernel_folder())
    return build.load(path), traits.tile_m if traits.longest_first else None
