"""Inputs, bounds and an fp32 reference that several test files of this family use."""

import jax
import jax.numpy as jnp
import numpy as np

from attnctl_kernels.contract import Candidate, Case, Mask, Problem, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity, check

BACKWARD_BLOCKS = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
VERSION = "1"


def make_config(block_q=64, block_kv=64, steps=2, *, wgs=2, backward=(64, 64, 64, 64), **changes):
    """``backward``: block_q_dkv, block_kv_dkv, block_q_dq, block_kv_dq."""
    config = {"block_q": block_q, "block_kv": block_kv, "max_concurrent_steps": steps, "compute_wgs_bwd": wgs}
    return config | (dict(zip(BACKWARD_BLOCKS, backward, strict=True)) if backward else {}) | changes


def make_problem(seqlen=512, history=320, *, heads=2, heads_kv=None, head_dim=64, batch_size=1, **changes):
    facts = {
        "batch_size": batch_size,
        "seqlen_q": seqlen,
        "seqlen_k": seqlen,
        "num_heads_q": heads,
        "num_heads_kv": heads if heads_kv is None else heads_kv,
        "head_dim": head_dim,
        "head_dim_v": head_dim,
        "dtype": "bfloat16",
        "mask": Mask(pattern="history_candidate", history_len=history),
    }
    return Problem(**(facts | changes))


def make_case(problem, config, pass_name="forward", version=VERSION):
    passes = ("forward",) if pass_name == "forward" else ("forward", "backward")
    return Case("ranker_fa3", version, "sm_90", problem, pass_name, config, passes=passes)


def make_task(problem, pass_name="forward"):
    return Task(family="ranker_fa3", version=VERSION, arch="sm_90", pass_name=pass_name, problem=problem)


def make_candidate(config):
    return Candidate(config=config)


def errors(case):
    found = check(case, get_family("ranker_fa3").rules())
    return {rule.code for rule, _ in found if rule.severity is Severity.ERROR}


def make_arrays(seed, shape, heads, heads_kv, dtype="bfloat16"):
    """q, k, v, dout; ``shape`` is (batch_size, seqlen, head_dim)."""
    rng = np.random.default_rng(seed)
    batch_size, seqlen, head_dim = shape
    shapes = [(batch_size, seqlen, number, head_dim) for number in (heads, heads_kv, heads_kv, heads)]
    return tuple(jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes)


def visible(bound, seqlen):
    """``(batch_size, seqlen, seqlen)``: which keys each query sees."""
    token = jnp.arange(seqlen)
    hist_lo, hist_hi, cand_lo, cand_hi = (jnp.asarray(bound)[:, [i]] for i in range(4))
    history = (token >= hist_lo) & (token < hist_hi)
    candidate = (token >= cand_lo) & (token < cand_hi)
    itself = jnp.eye(seqlen, dtype=bool)
    return ((history | candidate)[:, :, None] & history[:, None]) | (candidate[:, :, None] & itself)


def reference(q, k, v, bound, *, scale, cap=None, cap_method="tanh"):
    """O and LSE in fp32, differentiable."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (each.astype(jnp.float32) for each in (q, k, v))
    scores = jnp.einsum("bihd,bjhd->bhij", q, jnp.repeat(k, group, 2), precision="highest") * scale
    if cap is not None:
        scores = cap * jnp.tanh(scores / cap) if cap_method == "tanh" else scores / (1 + jnp.abs(scores) / cap)
    mask = visible(bound, q.shape[1])[:, None]
    sees = mask.any(-1)
    highest = jnp.where(sees, jnp.where(mask, scores, -jnp.inf).max(-1), 0)
    weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores - highest[..., None], 0)), 0)
    total = jnp.where(sees, weights.sum(-1), 1)
    out = jnp.einsum("bhij,bjhd->bihd", weights / total[..., None], jnp.repeat(v, group, 2), precision="highest")
    return out, jnp.where(sees, highest + jnp.log(total), -jnp.inf)


def gradients(function, q, k, v, dout, *, z_loss_weight=0.0):
    """O, LSE and the gradients of ``sum(out * dout) + z_loss_weight / 2 * sum(lse ** 2)``.

    A function that knows the z-loss itself is given weight 0 here.
    """

    def loss(q, k, v):
        out, lse = function(q, k, v)
        penalty = jnp.where(jnp.isinf(lse), 0.0, lse**2).sum() * z_loss_weight / 2
        return (out.astype(jnp.float32) * dout.astype(jnp.float32)).sum() + penalty, (out, lse)

    grads, (out, lse) = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)
    return {"out": out, "lse": lse, **dict(zip(("dq", "dk", "dv"), grads, strict=True))}


def require_close(got, want, bound):
    """Within the rounding of 16-bit elements; nothing at all, where a token is padding."""
    seen = np.asarray(visible(bound, want["lse"].shape[2]))
    padding = ~seen.any(-1)
    for name in ("out", "dq", "dk", "dv"):
        if name not in got:
            continue
        ours, theirs = np.asarray(got[name], np.float32), np.asarray(want[name], np.float32)
        assert not ours[padding].any(), name
        scale = np.sqrt((theirs**2).mean()) + 1e-6
        assert np.abs(ours - theirs).max() < 0.08 * scale + 0.02 * np.abs(theirs).max(), name
        assert np.sqrt(((ours - theirs) ** 2).mean()) < 0.01 * scale, name
    ours, theirs = np.asarray(got["lse"]), np.asarray(want["lse"])
    assert np.array_equal(np.isneginf(ours), np.isneginf(theirs))
    finite = np.isfinite(theirs)
    assert np.abs(ours[finite] - theirs[finite]).max(initial=0) < 1e-4
