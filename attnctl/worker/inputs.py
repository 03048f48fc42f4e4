"""Seeded inputs. Never zeros or constants: power, and so clocks, depend on the data."""

from __future__ import annotations

import math

import torch

from attnctl_kernels.contract import Inputs, Problem

_NEGATIVE_SCORE = -20.0
_NOISE = 0.25


def random_inputs(problem: Problem, seed: int, device: torch.device, *, gradient: bool) -> Inputs:
    """Unit normal Q, K and V, as after a normalisation layer; with ``gradient`` dO too."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(seqlen: int, num_heads: int, dim: int) -> torch.Tensor:
        shape = (problem.batch_size, seqlen, num_heads, dim)
        return torch.randn(shape, generator=generator, device=device).to(getattr(torch, problem.dtype))

    return Inputs(
        q=normal(problem.seqlen_q, problem.num_heads_q, problem.head_dim),
        k=normal(problem.seqlen_k, problem.num_heads_kv, problem.head_dim),
        v=normal(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v),
        dout=normal(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v) if gradient else None,
    )


def negative_scores(problem: Problem, seed: int, device: torch.device, *, gradient: bool) -> Inputs:
    """Inputs whose scores are all near -20, so that a score of 0 that should not exist takes nearly all the weight.

    A kernel that fills a short last tile with zeros and does not mask it passes on unit normal inputs, where a few
    extra weights of exp(0) hide below the tolerance.
    """
    inputs = random_inputs(problem, seed, device, gradient=gradient)
    scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)
    size = math.sqrt(-_NEGATIVE_SCORE / (scale * problem.head_dim))
    signs = torch.randint(0, 2, (problem.head_dim,), generator=torch.Generator().manual_seed(seed)) * 2 - 1
    direction = (signs * size).to(inputs.q)
    return Inputs(
        q=inputs.q.mul_(_NOISE * size).add_(direction),
        k=inputs.k.mul_(_NOISE * size).sub_(direction),
        v=inputs.v,
        dout=inputs.dout,
    )
