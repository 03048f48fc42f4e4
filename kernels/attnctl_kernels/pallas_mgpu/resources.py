"""What a TuningConfig takes of shared memory and registers, kernel by kernel.

Each kernel keeps a tile of ``rows`` per warp group and streams tiles of ``columns`` through a ring of stages.
The forward kernel always has two compute warp groups; the two backward kernels have ``compute_wgs_bwd``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnctl_kernels.contract import PassName, Problem

SMEM_LIMIT = 232448  # 227 KiB, sm_90
FORWARD_WGS = 2
FORWARD_REGISTERS = 232  # setmaxnreg of the compute groups
LOAD_REGISTERS = 40  # setmaxnreg of the loading group in the backward kernels
BARRIER_BYTES = 88
WARP_GROUP_THREADS = 128
ROW_FP32_BYTES = 4  # one LSE or delta value


@dataclass(frozen=True, slots=True)
class Kernel:
    """One of the three kernels, with the names of the parameters that size it."""

    name: str
    rows: str
    columns: str

    def wgs(self, config: Mapping[str, Any]) -> int:
        return FORWARD_WGS if self.name == "forward" else int(config["compute_wgs_bwd"])

    def steps(self, problem: Problem, config: Mapping[str, Any]) -> int:
        """Stages of the ring: never more than upstream's count of tiles."""
        if self.name == "forward":
            tiles = problem.seqlen_k // config[self.columns]
        else:
            length = problem.seqlen_q if self.name == "dQ" else problem.seqlen_k
            tiles = length // (config[self.rows] * self.wgs(config))
        return int(max(1, min(config["max_concurrent_steps"], tiles)))

    def smem_bytes(self, problem: Problem, config: Mapping[str, Any]) -> int:
        rows, columns, wgs = config[self.rows], config[self.columns], self.wgs(config)
        steps = self.steps(problem, config)
        row = problem.head_dim * problem.element_bytes
        if self.name == "forward":  # Q and its LSE; a ring of K and V
            return int(wgs * rows * (row + ROW_FP32_BYTES) + steps * columns * 2 * row + BARRIER_BYTES)
        with_stats = 2 * row + 2 * ROW_FP32_BYTES  # Q and dO, LSE and delta
        if self.name == "dQ":
            return int(wgs * rows * with_stats + steps * columns * 2 * row)
        return int(wgs * rows * 2 * row + steps * columns * with_stats)

    def registers(self, problem: Problem, config: Mapping[str, Any]) -> int:
        """Accumulators per thread: fp32 outputs, and S with its 16-bit copy or S and dP."""
        rows, columns = config[self.rows], config[self.columns]
        outputs = 2 if self.name == "dKV" else 1
        scores = 1.5 if self.name == "forward" else 2
        return int((outputs * rows * problem.head_dim + scores * rows * columns) / WARP_GROUP_THREADS)

    def register_limit(self, config: Mapping[str, Any]) -> int:
        if self.name == "forward":
            return FORWARD_REGISTERS
        return int(min(256, (512 - LOAD_REGISTERS) // self.wgs(config) // 8 * 8))

    def sized(self, config: Mapping[str, Any]) -> bool:
        """Whether every parameter is there and positive; other rules say so where one is not."""
        names = (self.rows, self.columns, "max_concurrent_steps", "compute_wgs_bwd")
        return all((config.get(name) or 0) > 0 for name in names)


KERNELS: Mapping[PassName, tuple[Kernel, ...]] = {
    "forward": (Kernel("forward", "block_q", "block_kv"),),
    "backward": (Kernel("dQ", "block_q_dq", "block_kv_dq"), Kernel("dKV", "block_kv_dkv", "block_q_dkv")),
}
