"""Family ``pallas_mgpu``: JAX's FlashAttention-3 kernels for Hopper, configured by one TuningConfig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Case, Config, Family, PassName, Problem, Resource, Scalar, SparseBlock
from attnctl_kernels.pallas_mgpu.resources import KERNELS, SMEM_LIMIT


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
    """Rules only: attnctl does not launch this kernel yet."""

    name: ClassVar[str] = "pallas_mgpu"
    title: ClassVar[str] = "JAX Pallas Mosaic GPU attention (FlashAttention-3 for Hopper)"
    arches: ClassVar[tuple[str, ...]] = ("sm_90",)
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    flat_config: ClassVar[bool] = True
    extra: ClassVar[str] = "jax"
    tunable: ClassVar[bool] = False

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
        return {}

    def resources(self, case: Case) -> tuple[Resource, ...]:
        table: list[Resource] = []
        for kernel in KERNELS[case.pass_name]:
            if kernel.sized(case.config):
                smem = kernel.smem_bytes(case.problem, case.config)
                registers = kernel.registers(case.problem, case.config)
                limit = kernel.register_limit(case.config)
                table += [
                    Resource(f"shared memory, {kernel.name} kernel", smem, SMEM_LIMIT, "bytes"),
                    Resource(f"registers per thread, {kernel.name} kernel", registers, limit, "registers"),
                ]
        return tuple(table)

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """The kernels skip key tiles, not separate sparse blocks."""
        tile = KERNELS[pass_name][0]
        rows, columns = config.get(tile.rows), config.get(tile.columns)
        return (int(rows), int(columns)) if rows and columns else None


FAMILY = PallasMgpu()
