"""History/candidate attention as a JAX function with a gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from attnctl_kernels.contract import Case, Config, Mask, PassName, Problem, join_words
from attnctl_kernels.pallas_mgpu.rules.values import BACKWARD_BLOCKS
from attnctl_kernels.pallas_mgpu.spec import TuningConfig
from attnctl_kernels.ranker_fa3.sm90.dkv import dkv
from attnctl_kernels.ranker_fa3.sm90.dq import dq
from attnctl_kernels.ranker_fa3.sm90.forward import forward
from attnctl_kernels.ranker_fa3.sm90.scores import CAP_METHODS, LOG2_E, Scores
from attnctl_kernels.ranker_fa3.spec import FAMILY, PARAMETERS
from attnctl_kernels.rule import Severity, Violation, check


@dataclass(frozen=True)
class _Static:
    """What a kernel is compiled for, beside shapes."""

    config: TuningConfig
    scores: Scores
    z_loss_weight: float


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bound: jax.Array,
    config: TuningConfig | Config | None = None,
    *,
    softmax_scale: float | None = None,
    cap: float | None = None,
    cap_method: str = "tanh",
    z_loss_weight: float = 0.0,
    return_lse: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """History/candidate attention with bounds per batch row; differentiable by q, k and v.

    Token ``i`` of batch row ``b`` is history where ``bound[b, 0] <= i < bound[b, 1]``, and a candidate where
    ``bound[b, 2] <= i < bound[b, 3]``. History sees all history; a candidate sees all history and itself; any other
    token sees nothing and is not seen: its output is 0, its LSE minus infinity, its gradients are 0. Such padding must
    hold finite numbers. Bounds that are known only on the device are taken as if each were at least its predecessor
    and within the sequence.

    Args:
        q: ``(batch_size, seqlen, num_heads_q, head_dim)``, bfloat16 or float16; head_dim a multiple of 64 up to 256.
        k: ``(batch_size, seqlen, num_heads_kv, head_dim)``; ``num_heads_kv`` divides ``num_heads_q``.
        v: as ``k``.
        bound: ``(batch_size, 4)`` integers: first history token, the one after the last, and the same of candidates.
        config: block sizes, as in a profile of family ``ranker_fa3``; None: see :func:`default_config`.
        softmax_scale: of the scores; ``1 / sqrt(head_dim)`` if None. Positive.
        cap: bounds the scores x: ``cap * tanh(x / cap)``, or with ``soft_sign`` ``x / (1 + |x| / cap)``. None: no cap.
        cap_method: ``tanh`` or ``soft_sign``.
        z_loss_weight: the gradient is that of the caller's loss plus ``z_loss_weight / 2`` times the sum of the squares
            of all LSEs. The value of that term is in no output.
        return_lse: also return the logarithm of each row's sum of exponentials, float32
            ``(batch_size, num_heads_q, seqlen)``; it is differentiable, too.

    Raises:
        ValueError: shapes, types, bounds or the config do not fit; the message names what does.
    """
    _require_arrays(q, k, v, bound)
    chosen = tuning(config, q.shape[-1])
    static = _Static(chosen, _scores(q.shape[-1], softmax_scale, cap, cap_method), _weight(z_loss_weight))
    _require(_problem(q, k), chosen, "forward")
    out, lse = _attention(static, q, k, v, _ordered(bound, q.shape[1]))
    return (out, lse) if return_lse else out


def default_config(head_dim: int) -> TuningConfig:
    """Small enough for shared memory at any head dimension; `attnctl tune` finds better ones."""
    wide = head_dim > 128
    backward = dict.fromkeys(BACKWARD_BLOCKS, 64)
    return TuningConfig(
        block_q=64,
        block_kv=64 if wide else 128,
        max_concurrent_steps=2,
        use_schedule_barrier=True,
        compute_wgs_bwd=1 if wide else 2,
        **backward,
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(static: _Static, q: Any, k: Any, v: Any, bound: Any) -> tuple[Any, Any]:
    config = static.config
    return forward(
        q,
        k,
        v,
        bound,
        scores=static.scores,
        block_q=config.block_q,
        block_kv=config.block_kv,
        stages=min(config.max_concurrent_steps, k.shape[1] // config.block_kv),
        schedule=config.use_schedule_barrier is not False,
    )


def _attention_fwd(static: _Static, q: Any, k: Any, v: Any, bound: Any) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    _require(_problem(q, k), static.config, "backward")
    out, lse = _attention(static, q, k, v, bound)
    return (out, lse), (q, k, v, bound, out, lse)


def _attention_bwd(static: _Static, kept: tuple[Any, ...], gradients: tuple[Any, Any]) -> tuple[Any, ...]:
    q, k, v, bound, out, lse = kept
    dout, dlse = gradients
    if static.z_loss_weight:
        dlse = dlse + static.z_loss_weight * lse
    return *backward(static.config, static.scores, q, k, v, bound, out, lse, dout, dlse), None


_attention.defvjp(_attention_fwd, _attention_bwd)


def backward(
    config: TuningConfig,
    scores: Scores,
    q: Any,
    k: Any,
    v: Any,
    bound: Any,
    out: Any,
    lse: Any,
    dout: Any,
    dlse: Any | None = None,
) -> tuple[Any, Any, Any]:
    """Gradients of q, k and v, of bounds in order.

    Raises:
        ValueError: the config does not fit.
    """
    _require(_problem(q, k), config, "backward")
    sees = lse != -jnp.inf
    delta = jnp.einsum("bihd,bihd->bhi", out, dout, preferred_element_type=jnp.float32)
    if dlse is not None:
        delta = delta - dlse  # an LSE's derivative by a score is the weight, by which the kernels multiply
    delta = jnp.where(sees, delta, 0.0)
    arrays = (q, k, v, dout.astype(q.dtype), jnp.where(sees, lse * LOG2_E, jnp.inf), delta, bound)
    shared = {"scores": scores, "stages": config.max_concurrent_steps, "wgs": config.compute_wgs_bwd}
    of_q = dq(*arrays, block_q=config.block_q_dq, block_kv=config.block_kv_dq, **shared)
    return of_q, *dkv(*arrays, block_q=config.block_q_dkv, block_kv=config.block_kv_dkv, **shared)


def _require_arrays(q: Any, k: Any, v: Any, bound: Any) -> None:
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
    for name, shape in shapes.items():
        if len(shape) != 4 or not all(shape):
            raise ValueError(f"{name} is {shape}; it must be (batch_size, seqlen, num_heads, head_dim)")
    batch_size, seqlen, _, head_dim = q.shape
    wanted = (batch_size, seqlen, k.shape[2], head_dim)
    for name in ("k", "v"):
        if shapes[name] != wanted:
            raise ValueError(f"{name} is {shapes[name]}; beside q of {q.shape} it must be {wanted}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; they must be of one type")
    if q.dtype not in (jnp.float16, jnp.bfloat16):
        raise ValueError(f"q is {q.dtype}; it must be bfloat16 or float16")
    shape = jnp.shape(bound)
    if shape != (batch_size, 4) or not jnp.issubdtype(jnp.result_type(bound), jnp.integer):
        raise ValueError(f"bound is {jnp.result_type(bound)} {shape}; it must be integers of shape {(batch_size, 4)}")
    if not isinstance(bound, jax.core.Tracer):
        for row, values in enumerate(np.asarray(bound).tolist()):
            if sorted(values) != values or values[0] < 0 or values[3] > seqlen:
                raise ValueError(f"bound of batch row {row} is {values}; it must ascend within 0 to {seqlen}")


def _ordered(bound: Any, seqlen: int) -> jax.Array:
    """Each at least its predecessor, within the sequence: no token is history and candidate, and none is elsewhere."""
    values = jnp.asarray(bound, jnp.int32)
    return lax.cummax(jnp.clip(values, 0, seqlen), axis=1) if isinstance(bound, jax.core.Tracer) else values


def _scores(head_dim: int, scale: float | None, cap: float | None, cap_method: str) -> Scores:
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"softmax_scale is {scale}; it must be positive and finite")
    if cap_method not in CAP_METHODS:
        raise ValueError(f"cap_method is {cap_method!r}; it must be {join_words(CAP_METHODS)}, or cap None")
    if cap is not None and not (cap > 0 and math.isfinite(cap)):
        raise ValueError(f"cap is {cap}; it must be positive and finite, or None for no cap")
    return Scores(float(scale), None if cap is None else float(cap), cap_method)


def _weight(z_loss_weight: float) -> float:
    if not (z_loss_weight >= 0 and math.isfinite(z_loss_weight)):
        raise ValueError(f"z_loss_weight is {z_loss_weight}; it must be 0 or positive, and finite")
    return float(z_loss_weight)


def tuning(config: TuningConfig | Config | None, head_dim: int) -> TuningConfig:
    """``config`` with the defaults of what it leaves out, the backward blocks excepted."""
    if config is None:
        return default_config(head_dim)
    given = config if isinstance(config, Mapping) else config.model_dump(exclude_none=True)
    unknown = sorted(set(given) - set(PARAMETERS))
    if unknown:
        raise ValueError(f"config has no parameter {unknown[0]}; there are {join_words(PARAMETERS, 'and')}")
    default = default_config(head_dim).model_dump(exclude=set(BACKWARD_BLOCKS))  # those are given together, or not
    return TuningConfig(**{**default, **given})


def _problem(q: Any, k: Any) -> Problem:
    batch_size, seqlen, num_heads, head_dim = q.shape
    return Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=seqlen,
        num_heads_q=num_heads,
        num_heads_kv=k.shape[2],
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=q.dtype.name,
        mask=Mask(pattern="history_candidate", history_len=seqlen),
    )


@cache
def _require(problem: Problem, config: TuningConfig, pass_name: PassName) -> None:
    """The family's own rules: what `attnctl validate` says of a profile."""
    written = config.model_dump(exclude_none=True)
    passes: tuple[PassName, ...] = ("forward",) if pass_name == "forward" else ("forward", "backward")  # noqa: S105
    case = Case(FAMILY.name, FAMILY.versions[-1], "sm_90", problem, pass_name, written, passes=passes)
    broken = [_said(rule.code, each) for rule, each in check(case, FAMILY.rules()) if rule.severity is Severity.ERROR]
    if broken:
        raise ValueError("\n".join(broken))


def _said(code: str, violation: Violation) -> str:
    fixes = join_words([f"{each.field.partition('.')[2]}={each.value}" for each in violation.fixes])
    return f"{code}: {violation.message}" + (f"; {fixes} would do" if fixes else "")
