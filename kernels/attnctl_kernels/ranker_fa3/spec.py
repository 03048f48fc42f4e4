"""Family ``ranker_fa3``: history/candidate attention in Pallas, configured by the same TuningConfig as `pallas_mgpu`.

Version 1 is attnctl's own kernels, for programs :func:`attnctl_kernels.ranker_fa3.attention.attention`. Version
``xai`` is the kernel of x-algorithm (`phoenix/xrex/pallas/ranker_attention_fa3.py`), of which attnctl knows the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from attnctl_kernels.contract import Case, Config, PassName, Problem, Scalar, SparseBlock
from attnctl_kernels.pallas_mgpu.resources import KERNELS, XAI
from attnctl_kernels.pallas_mgpu.spec import BLOCKS, PallasMgpu, TuningConfig
from attnctl_kernels.ranker_fa3.sources import sources_hash
from attnctl_kernels.rule import Rule, rules_of_family

# Parameters of TuningConfig that the own kernels have no use for.
FOREIGN = ("pipeline_emitter", "cuda_runtime")
PARAMETERS = tuple(name for name in TuningConfig.model_fields if name not in FOREIGN)


class RankerConfig(TuningConfig):
    """What the ranker passes beside its TuningConfig, and the sizes that x-algorithm's callers compute from."""

    bound: tuple[int, ...] | None = None  # first and last key of history, of candidates
    default_bound: bool | None = None  # True: the call passes no bound
    cap: float | None = None
    cap_method: str | None = None
    num_user_prefix_tokens: int | None = None
    history_seq_len: int | None = None
    emb_size: int | None = None


class RankerFa3(PallasMgpu):
    """The rules of `pallas_mgpu` and the ranker's own."""

    name: ClassVar[str] = "ranker_fa3"
    title: ClassVar[str] = "history/candidate attention, Pallas Mosaic GPU"
    versions: ClassVar[tuple[str, ...]] = (XAI, "1")

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return RankerConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """x-algorithm's choice for training; its inference code takes `block_kv` 128."""
        return {
            "block_q": 64,
            "block_kv": 64,
            "max_concurrent_steps": 2,
            "use_schedule_barrier": True,
            "compute_wgs_bwd": 2 if problem.head_dim <= 128 else 1,
        }

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        steps = {"max_concurrent_steps": (2, 3, 4)}
        if pass_name == "forward":  # noqa: S105 - not a password
            rows = BLOCKS[:2] if problem.head_dim > 64 else BLOCKS[:3]  # more rows spill: PAL-H003
            return {"block_q": rows, "block_kv": BLOCKS, **steps, "use_schedule_barrier": (True, False)}
        blocks = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), BLOCKS[:2])
        return {"compute_wgs_bwd": (1, 2), **blocks, **steps}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """The kernels skip key tiles, not separate sparse blocks."""
        tile = KERNELS[pass_name][0]
        rows, columns = config.get(tile.rows), config.get(tile.columns)
        return (int(rows), int(columns)) if rows and columns else None

    def cannot_run(self, case: Case) -> str | None:
        if reason := self.cannot_compile(case):
            return reason
        cap, bound = case.config.get("cap"), case.config.get("bound")
        if cap:
            return f"config.cap is {cap}, and the reference that results are checked against has none"
        if isinstance(bound, tuple) and bound != bound_of(case.problem):
            return f"config.bound is {list(bound)}, and that of the mask is {list(bound_of(case.problem))}"
        return None

    def cannot_compile(self, case: Case) -> str | None:
        if case.version == XAI:
            return (
                f"version is {XAI}, of which attnctl knows the rules; its own kernels are version {self.versions[-1]}"
            )
        for name in FOREIGN:
            if case.config.get(name):
                return f"config.{name} is {case.config[name]}, which version {case.version} does not have"
        return None

    def sources(self) -> dict[str, str]:
        return {"ranker_fa3-sources": sources_hash()}

    def rules(self) -> Sequence[Rule]:
        shared = rules_of_family(PallasMgpu.__module__)
        return (*shared, *rules_of_family(__name__))


def bound_of(problem: Problem) -> tuple[int, int, int, int]:
    """First and last key of history and of candidates under a problem's mask."""
    length, history = problem.seqlen_k, problem.mask.history_len
    history = length if problem.mask.pattern == "dense" or history is None else min(history, length)
    return (0, history, history, length)


FAMILY = RankerFa3()
