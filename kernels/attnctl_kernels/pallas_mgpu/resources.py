"""What a TuningConfig takes of shared memory and registers, kernel by kernel.

Each kernel keeps a tile of ``rows`` per warp group and streams tiles of ``columns`` through a ring of stages.
The forward kernel always has two compute warp groups; the two backward kernels have ``compute_wgs_bwd``. Shared
memory is what Mosaic GPU asks the driver for, to the byte: tests/pallas_mgpu holds it against the lowered kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnctl_kernels.contract import Case, PassName, Problem

SMEM_LIMIT = 232448  # 227 KiB, sm_90
FORWARD_WGS = 2
FORWARD_REGISTERS = 232  # setmaxnreg of the compute groups
LOAD_REGISTERS = 40  # setmaxnreg of the loading group in the backward kernels
BARRIER_BYTES = 8
BUFFER_ALIGNMENT = 1024  # of every buffer in shared memory
REDUCTION_BYTES = 2048  # scratch of any kernel that takes a row's maximum or sum
WARP_GROUP_THREADS = 128
ROW_FP32_BYTES = 4  # one LSE or delta value
XAI = "xai"  # the version of ranker_fa3 that is x-algorithm's kernel


@dataclass(frozen=True, slots=True)
class Kernel:
    """One of the three kernels, with the names of the parameters that size it."""

    name: str
    rows: str
    columns: str
    saves_lse: bool = True  # the forward kernel: training needs the LSE, and attnctl checks it
    fixed_grid: bool = True  # the number of streamed tiles is known when the kernel is traced

    def wgs(self, config: Mapping[str, Any]) -> int:
        return FORWARD_WGS if self.name == "forward" else int(config["compute_wgs_bwd"])

    def steps(self, problem: Problem, config: Mapping[str, Any]) -> int:
        """Stages of the ring: at most the tiles that stream through it and, in the backward kernels, the grid's."""
        over, through = problem.seqlen_q, problem.seqlen_k
        if self.name == "dKV":
            over, through = through, over
        limits = [config["max_concurrent_steps"]]
        if self.fixed_grid:
            limits.append(through // config[self.columns])
        if self.name != "forward":
            limits.append(over // (config[self.rows] * self.wgs(config)))
        return int(max(1, min(limits)))

    def smem_bytes(self, problem: Problem, config: Mapping[str, Any]) -> int:
        wgs, steps = self.wgs(config), self.steps(problem, config)
        row = problem.head_dim * problem.element_bytes
        kept, streamed = wgs * config[self.rows], steps * config[self.columns]
        if self.name == "forward":  # Q, later the output, and the LSE; a ring of K and V
            buffers = [
                kept * row,
                *[streamed * row] * 2,
                kept * ROW_FP32_BYTES if self.saves_lse else 0,
                REDUCTION_BYTES,
            ]
            # one per step and side while K and V load and when they are used; the emitter waits for both at once
            barriers = wgs + 1 + steps * (3 if config.get("pipeline_emitter") else 4)
        elif self.name == "dQ":  # Q, dO, LSE and delta; a ring of K and V
            buffers = [*[kept * row] * 2, *[kept * ROW_FP32_BYTES] * 2, *[streamed * row] * 2]
            barriers = 4 * wgs + 3 * steps
        else:  # K and V; a ring of Q, dO, LSE and delta
            buffers = [*[kept * row] * 2, *[streamed * row] * 2, *[streamed * ROW_FP32_BYTES] * 2]
            barriers = 2 * wgs + 5 * steps
        return int(sum(map(aligned, buffers)) + barriers * BARRIER_BYTES)

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


def kernels(case: Case) -> tuple[Kernel, ...]:
    """Those of the case's pass. x-algorithm's inference saves no LSE, and its backward grids depend on the bounds."""
    found = KERNELS[case.pass_name]
    if case.family == "pallas_mgpu":
        return found
    if case.version != XAI:
        from attnctl_kernels.ranker_fa3.resources import KERNELS as OWN  # noqa: PLC0415 - it imports this module

        return OWN[case.pass_name]
    if case.pass_name == "forward":  # noqa: S105 - not a password
        return tuple(replace(each, saves_lse="backward" in case.passes) for each in found)
    return tuple(replace(each, fixed_grid=False) for each in found)


def aligned(size: int) -> int:
    """What a buffer in shared memory takes."""
    return -(-size // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT
