"""The backward pass as a PyTorch operator, and the forward operator's gradient."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnctl_kernels.contract import join_words
from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker import backward_config as own
from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.checks import aligned, read_config, write_config
from attnctl_kernels.ranker.config import HEAD_DIMS, SMEM_LIMIT
from attnctl_kernels.ranker.tuned import HISTORY, name_of, tuned

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
    dlse: Tensor | None,
    bounds: Tensor,
    softmax_scale: float,
    logit_cap: float | None,
    config: str | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``dq``, ``dk``, ``dv``, contiguous, in the dtype of the inputs. ``dlse`` None: no gradient of the LSE."""
    if not (q.numel() and k.numel()):  # nobody sees anything
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    _say_that_order_varies()
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    by_ranges = bounds.ndim == 3
    if config is None:
        config = "" if by_ranges else tuned("backward", q, k, HISTORY)
    form = {"ranges": by_ranges, "capped": logit_cap is not None, "lse_gradient": dlse is not None}
    kernel, tile_m = _kernel(q.shape[-1], q.dtype, complete(q.shape[-1], config), **form)
    with torch.cuda.device(q.device):
        scratch = backward_call.scratch(q, tile_m)
        spans = backward_call.spans(k).view(torch.int32) if by_ranges else None
        q, k, v = aligned(q), aligned(k), aligned(v)
        bounds = bounds if by_ranges else bounds.as_strided(bounds.shape, (4, 1))
        if dlse is not None:  # dimensions of size 1 may have any stride
            dlse = dlse.contiguous().as_strided(lse.shape, lse.stride())
        given = q, k, v, out, _loadable(dout), lse, dlse
        kernel(*given, dq, dk, dv, *scratch, bounds, spans, softmax_scale, logit_cap)
    return dq, dk, dv


@backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _no_second(*_: object) -> None:
    raise RuntimeError("ranker has no second derivative: ask for gradients without create_graph=True")


backward.register_autograd(_no_second)


@cache
def complete(head_dim: int, text: str) -> str:
    """What is written, as ``checks.write_config`` does it, with the default's values where it leaves something out.

    Raises:
        ValueError: there is no kernel for it.
    """
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim is {head_dim}; the kernel takes {join_words(HEAD_DIMS, 'and')}")
    names, given = tuple(own.BackwardConfig.model_fields), read_config(text)
    if unknown := sorted(given.keys() - set(names)):
        raise ValueError(f"backward_config: unknown {', '.join(unknown)}; known are {', '.join(names)}")
    default = own.default_config(head_dim)
    config = {**default, **given}
    for name, allowed in (("tile_m", own.TILES_M), ("tile_n", own.tiles_n(head_dim)), ("stages", own.STAGES)):
        if config[name] not in allowed:
            raise ValueError(
                f"backward_config: {name} is {config[name]}; it must be one of {', '.join(map(str, allowed))}"
            )
    if own.pieces(head_dim, config) % own.warp_groups(head_dim, config):
        raise ValueError(
            f"backward_config: tile_m {config['tile_m']} is too small for tile_n {config['tile_n']} at head_dim "
            f"{head_dim}; the default is {default}"
        )
    used = own.smem_bytes(head_dim, config)
    if used > SMEM_LIMIT:
        raise ValueError(
            f"backward_config: tile_m {config['tile_m']}, tile_n {config['tile_n']} and stages {config['stages']} take "
            f"{used} bytes of shared memory, the limit is {SMEM_LIMIT}; the default is {default}"
        )
    return write_config({name: config[name] for name in names})


def differentiate(forward: Any, names: tuple[str, ...]) -> None:
    """Give the forward operator, whose inputs have these names and begin with q, k and v, its gradient."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)  # an LSE that nobody differentiates costs nothing
        given = dict(zip(names, inputs, strict=True))
        ctx.save_for_backward(*(given[name] for name in ("q", "k", "v", "bounds")), *output)
        ctx.rest = tuple(given[name] for name in ("softmax_scale", "logit_cap", "backward_config"))

    def gradients(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        if dout is None and dlse is None:
            return (None,) * len(names)
        q, k, v, bounds, out, lse = ctx.saved_tensors
        dout = torch.zeros_like(out) if dout is None else dout
        found = backward(q, k, v, out, dout, lse, dlse, bounds, *ctx.rest)
        return (*found, *(None,) * (len(names) - 3))

    forward.register_autograd(gradients, setup_context=save)


@cache
def _kernel(head_dim: int, dtype: torch.dtype, text: str, **form: bool) -> tuple[Kernel, int]:
    """The kernels, and their rows per step."""
    config = read_config(text)
    path, _ = backward_call.kernel_object(head_dim, name_of(dtype), config, kernel_folder(), **form)
    return backward_call.load(path), int(config["tile_m"])


def _say_that_order_varies() -> None:
    """As PyTorch's own operators do where `torch.use_deterministic_algorithms` is on."""
    if not torch.are_deterministic_algorithms_enabled():
        return
    message = (
        "ranker sums dQ in any order, so that it may differ in a last bit from run to run: no deterministic form of it "
        "exists; torch.use_deterministic_algorithms(True, warn_only=True) makes this a warning"
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=2)


def _loadable(x: Tensor) -> Tensor:
    """As TMA takes it: autograd hands out gradients of any strides, such as those of an expanded scalar."""
    x = aligned(x)
    fits = x.stride(-1) == 1 and all(stride % 8 == 0 and stride for stride in x.stride()[:-1])
    # What PyTorch calls contiguous may begin anywhere: `contiguous` would leave it there.
    return x if fits and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
