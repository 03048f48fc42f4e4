"""The backward pass as a PyTorch operator, and the forward operator's gradient."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnctl_kernels.contract import Config
from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker import backward_config as own
from attnctl_kernels.ranker.config import SMEM_LIMIT

if TYPE_CHECKING:
    from attnctl_kernels.ranker.sm90.build import Kernel


@torch.library.custom_op("attnctl::ranker_backward", mutates_args=(), device_types="cuda")
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    dout: Tensor,
    lse: Tensor,
    bounds: Tensor,
    softmax_scale: float,
    config: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """``dq``, ``dk``, ``dv``, contiguous, in the dtype of the inputs; ``config`` is complete, as JSON."""
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel():
        chosen = json.loads(config)
        kernel = _kernel(q.shape[-1], str(q.dtype).removeprefix("torch."), config)
        with torch.cuda.device(q.device):
            scratch = backward_call.scratch(q, chosen["tile_m"])
            kernel(q, k, v, out, _loadable(dout), lse, dq, dk, dv, *scratch, bounds, softmax_scale)
    return dq, dk, dv


@backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def complete(head_dim: int, given: Config) -> str:
    """The config with what it leaves out, as JSON.

    Raises:
        ValueError: there is no kernel for it.
    """
    names = tuple(own.BackwardConfig.model_fields)
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"backward_config: unknown {', '.join(unknown)}; known are {', '.join(names)}")
    config = {**own.default_config(head_dim), **given}
    for name, allowed in (("tile_m", own.TILES_M), ("tile_n", own.TILES_N), ("stages", own.STAGES)):
        if config[name] not in allowed:
            raise ValueError(
                f"backward_config: {name} is {config[name]}; it must be one of {', '.join(map(str, allowed))}"
            )
    default = f"the default is {own.default_config(head_dim)}"
    if own.squares(head_dim, config) % own.warp_groups(config):
        raise ValueError(
            f"backward_config: tile_m {config['tile_m']} is too small for tile_n {config['tile_n']} at head_dim "
            f"{head_dim}; {default}"
        )
    used = own.smem_bytes(head_dim, config)
    if used > SMEM_LIMIT:
        raise ValueError(
            f"backward_config: tile_m {config['tile_m']}, tile_n {config['tile_n']} and stages {config['stages']} take "
            f"{used} bytes of shared memory, the limit is {SMEM_LIMIT}; {default}"
        )
    return json.dumps(config, sort_keys=True)


def differentiate(forward: Any, names: tuple[str, ...]) -> None:
    """Give the forward operator, whose inputs have these names and begin with q, k and v, its gradient.

    LSE has none: ``attention`` hands it out detached.
    """

    def save(context: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        given = dict(zip(names, inputs, strict=True))
        context.save_for_backward(*(given[name] for name in ("q", "k", "v", "bounds")), *output)
        context.softmax_scale, context.config = given["softmax_scale"], given["backward_config"]

    def gradients(context: Any, dout: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if dout is None:
            return (None,) * len(names)
        q, k, v, bounds, out, lse = context.saved_tensors
        found = backward(q, k, v, out, dout, lse, bounds, context.softmax_scale, context.config)
        return (*found, *(None,) * (len(names) - 3))

    forward.register_autograd(gradients, setup_context=save)


@cache
def _kernel(head_dim: int, dtype: str, config: str) -> Kernel:
    folder = os.environ.get("ATTNCTL_CACHE_DIR") or Path.home() / ".cache" / "attnctl"
    path, _ = backward_call.kernel_object(head_dim, dtype, json.loads(config), Path(folder) / "ranker")
    return backward_call.load(path)


def _loadable(x: Tensor) -> Tensor:
    """As TMA takes it: autograd hands out gradients of any strides, such as those of an expanded scalar."""
    fits = x.stride(-1) == 1 and all(stride % 8 == 0 and stride for stride in x.stride()[:-1])
    return x if fits and x.data_ptr() % 16 == 0 else x.contiguous()
