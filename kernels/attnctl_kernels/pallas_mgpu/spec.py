"""Family ``pallas_mgpu``: JAX's FlashAttention-3 kernels for Hopper, configured by one TuningConfig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Case, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.pallas_mgpu.resources import FORWARD_WGS, SMEM_LIMIT, kernels

BLOCKS = (64, 128, 192, 256)


class TuningConfig(BaseModel):
    """Upstream's dataclass, without ``causal``: that is a fact about the mask."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    block_q: int | None = None
    block_kv: int | None = None
    max_concurrent_steps: int | None = None
    use_schedule_barrier: bool | None = None
    compute_wgs_bwd: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    pipeline_emitter: bool | None = None  # True: `attention_with_pipeline_emitter`
    cuda_runtime: int | None = None  # of the machine that compiles, as CUDA counts: 12091 is 12.9.1


class PallasMgpu(Family):
    """Dense and causal attention, and the gradient of the dense one."""

    name: ClassVar[str] = "pallas_mgpu"
    title: ClassVar[str] = "JAX Pallas Mosaic GPU attention (FlashAttention-3 for Hopper)"
    versions: ClassVar[tuple[str, ...]] = ("0.10.2", "0.11.2")  # of jax; the rules are the same for both
    arches: ClassVar[tuple[str, ...]] = ("sm_90",)
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
    extra: ClassVar[str] = "jax"

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return TuningConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """Upstream wants the first three written down; the backward blocks have no default at all."""
        return {
            "block_q": 64,
            "block_kv": 128 if problem.head_dim <= 128 else 64,
            "max_concurrent_steps": 2,
            "use_schedule_barrier": True,
            "compute_wgs_bwd": 1,
        }

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        """With `use_schedule_barrier`, which `attention` ignores: what lowers to the same code is measured once."""
        steps = {"max_concurrent_steps": (2, 3, 4)}
        if pass_name == "forward":  # noqa: S105 - not a password
            rows = BLOCKS[:2] if problem.head_dim > 64 else BLOCKS[:3]  # more rows spill: PAL-H003
            entries = {"pipeline_emitter": (False, True), "use_schedule_barrier": (True, False)}
            return {"block_q": rows, "block_kv": BLOCKS, **steps, **entries}
        blocks = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), BLOCKS[:2])
        return {"compute_wgs_bwd": (1, 2), **blocks, **steps}

    def resources(self, case: Case) -> tuple[Resource, ...]:
        table: list[Resource] = []
        for kernel in kernels(case):
            if kernel.sized(case.config):
                smem = kernel.smem_bytes(case.problem, case.config)
                registers = kernel.registers(case.problem, case.config)
                limit = kernel.register_limit(case.config)
                table += [
                    Resource(f"shared memory, {kernel.name} kernel", smem, SMEM_LIMIT, "bytes"),
                    Resource(f"registers per thread, {kernel.name} kernel", registers, limit, "registers"),
                ]
        return tuple(table)

    def grid(self, case: Case) -> int | None:
        """None for the backward pass: two kernels with grids of their own."""
        problem, rows = case.problem, int(case.config.get("block_q") or 0)
        if case.pass_name == "backward" or rows < 1:  # noqa: S105 - not a password
            return None
        return problem.batch_size * problem.num_heads_q * (problem.seqlen_q // (FORWARD_WGS * rows))

    def predicted_cost(self, case: Case) -> float:
        """Registers over the limit spill, which costs most; then the fewer tiles, the better."""
        if not all(kernel.sized(case.config) for kernel in kernels(case)):
            return 0.0
        cost = 0.0
        for kernel in kernels(case):
            spilled = kernel.registers(case.problem, case.config) / kernel.register_limit(case.config)
            tile = int(case.config[kernel.rows]) * int(case.config[kernel.columns])
            cost += max(1.0, spilled) ** 2 * (1 + 4096 / tile)
        return cost


FAMILY = PallasMgpu()
