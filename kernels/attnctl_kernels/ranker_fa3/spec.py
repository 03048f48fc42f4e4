"""Family ``ranker_fa3``: the ranker's Pallas kernels, configured by the same TuningConfig as `pallas_mgpu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from attnctl_kernels.contract import Config, PassName, Problem, Scalar, SparseBlock
from attnctl_kernels.pallas_mgpu.resources import KERNELS
from attnctl_kernels.pallas_mgpu.spec import PallasMgpu, TuningConfig
from attnctl_kernels.rule import Rule, rules_of_family


class RankerConfig(TuningConfig):
    """What the ranker passes beside its TuningConfig, and the sizes that its callers compute from."""

    bound: tuple[int, ...] | None = None  # first and last key of history, of candidates
    default_bound: bool | None = None  # True: the call passes no bound
    cap: float | None = None
    cap_method: str | None = None
    num_user_prefix_tokens: int | None = None
    history_seq_len: int | None = None
    emb_size: int | None = None


class RankerFa3(PallasMgpu):
    """The rules of `pallas_mgpu` and the ranker's own: rules only."""

    name: ClassVar[str] = "ranker_fa3"
    title: ClassVar[str] = "x-algorithm ranker attention, Pallas Mosaic GPU"
    versions: ClassVar[tuple[str, ...]] = ("1",)
    tunable: ClassVar[bool] = False

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return RankerConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """The ranker's choice for training; its inference code takes `block_kv` 128."""
        return {
            "block_q": 64,
            "block_kv": 64,
            "max_concurrent_steps": 2,
            "use_schedule_barrier": True,
            "compute_wgs_bwd": 2 if problem.head_dim <= 128 else 1,
        }

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        """The kernels skip key tiles, not separate sparse blocks."""
        tile = KERNELS[pass_name][0]
        rows, columns = config.get(tile.rows), config.get(tile.columns)
        return (int(rows), int(columns)) if rows and columns else None

    def rules(self) -> Sequence[Rule]:
        shared = rules_of_family(PallasMgpu.__module__)
        return (*shared, *rules_of_family(__name__))


FAMILY = RankerFa3()
