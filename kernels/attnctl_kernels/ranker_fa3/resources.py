"""What attnctl's own kernels take of shared memory: tests/ranker_fa3 holds it against the lowered ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnctl_kernels.contract import PassName, Problem
from attnctl_kernels.pallas_mgpu.resources import BARRIER_BYTES, REDUCTION_BYTES, ROW_FP32_BYTES, Kernel, aligned


@dataclass(frozen=True, slots=True)
class OwnKernel(Kernel):
    """One of the three; ``rows`` and ``columns`` as in :class:`Kernel`."""

    def steps(self, problem: Problem, config: Mapping[str, Any]) -> int:
        """Stages of the ring: in the forward kernel at most the key tiles there are."""
        steps = int(config["max_concurrent_steps"])
        return max(1, min(steps, problem.seqlen_k // config[self.columns])) if self.name == "forward" else steps

    def smem_bytes(self, problem: Problem, config: Mapping[str, Any]) -> int:
        wgs, steps = self.wgs(config), self.steps(problem, config)
        row = problem.head_dim * problem.element_bytes
        kept, streamed = wgs * config[self.rows], steps * config[self.columns]
        ring = max(kept, streamed)  # K and V: before the first stages, its end holds the tile's own keys
        if self.name == "forward":  # Q, later the output; K; V; LSE
            buffers = [kept * row, *[ring * row] * 2, kept * ROW_FP32_BYTES, REDUCTION_BYTES]
            barriers = 4 * steps + 2 * wgs + 2
        elif self.name == "dQ":  # Q, later its gradient, and dO; K and V; LSE and delta
            buffers = [*[kept * row] * 2, *[ring * row] * 2, *[kept * ROW_FP32_BYTES] * 2, REDUCTION_BYTES]
            barriers = 2 * steps + 2 * wgs + 1
        else:  # K and V, later their gradients; Q and dO; LSE and delta
            buffers = [*[kept * row] * 2, *[streamed * row] * 2, *[streamed * ROW_FP32_BYTES] * 2]
            barriers = 2 * steps + wgs
        return int(sum(map(aligned, buffers)) + barriers * BARRIER_BYTES)


KERNELS: Mapping[PassName, tuple[Kernel, ...]] = {
    "forward": (OwnKernel("forward", "block_q", "block_kv"),),
    "backward": (OwnKernel("dQ", "block_q_dq", "block_kv_dq"), OwnKernel("dKV", "block_kv_dkv", "block_q_dkv")),
}
