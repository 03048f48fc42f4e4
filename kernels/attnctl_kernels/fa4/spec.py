"""Family ``fa4``: flash-attn-4's CuTe DSL kernels. Rules for all arches; on sm_90 it can be tuned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from pydantic import BaseModel

from attnctl_kernels.contract import (
    Case,
    Config,
    Family,
    PassName,
    Problem,
    Resource,
    Scalar,
    SparseBlock,
    join_words,
)
from attnctl_kernels.fa4 import backward, backward_cost, cost, mask_form, models, tiles
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.fa4.config import IMPLIED, LAUNCHED, BackwardConfig, ForwardConfig
from attnctl_kernels.fa4.target import TARGETS

VERSION = "4.0.0b36"


class Fa4(Family):
    name: ClassVar[str] = "fa4"
    title: ClassVar[str] = "FlashAttention-4 (CuTe DSL)"
    versions: ClassVar[tuple[str, ...]] = (VERSION,)
    arches: ClassVar[tuple[str, ...]] = (
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_90",
        "sm_100",
        "sm_103",
        "sm_110",
        "sm_120",
    )
    passes: ClassVar[tuple[PassName, ...]] = ("forward", "backward")
    extra: ClassVar[str] = "fa4"
    varlen: ClassVar[bool] = True

    def sources(self) -> dict[str, str]:
        """Of the installed package's list of files with their hashes."""
        import hashlib  # noqa: PLC0415 - validate does without both
        from importlib import metadata  # noqa: PLC0415

        try:
            record = metadata.distribution("flash-attn-4").read_text("RECORD") or ""
        except metadata.PackageNotFoundError:
            return {}
        return {"flash-attn-4-sources": hashlib.sha256(record.encode()).hexdigest()[:16]}

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return ForwardConfig if pass_name == "forward" else BackwardConfig  # noqa: S105 - not a password

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        if pass_name == "backward":  # noqa: S105 - not a password
            tile = tiles.backward_tile(problem, arch, sparse_block)
            config = asdict(backward.sm90_default(problem, sparse_block) if arch == "sm_90" else tile)
            if tiles.is_sparse(problem):
                config["subtile_factor"] = tiles.subtile_factor(tile, arch, sparse_block)
            return config
        forward = tiles.forward_tile(problem, arch, sparse_block)
        if arch != "sm_90":
            return {"tile_m": forward.tile_m, "tile_n": forward.tile_n}
        return {name: getattr(forward, name) for name in forward.__slots__}  # asdict copies deeply, ten thousand times

    def canonical(self, config: Config, pass_name: PassName) -> dict[str, Scalar]:
        implied = IMPLIED[pass_name]
        return {name: value for name, value in config.items() if name not in implied or value != implied[name]}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        block = int(config["tile_m"]) * int(config.get("subtile_factor", 1)), int(config["tile_n"])
        return block if mask_form.uses_lists(problem, config) and min(block) > 0 else None

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        """On sm_90. The backward kernels of other arches take what they take."""
        if arch != "sm_90":
            return {}
        if pass_name == "backward":  # noqa: S105 - not a password
            return backward.sm90_space(problem)
        space: dict[str, Sequence[Any]] = {
            "tile_m": tiles.SM90_TILES_M,
            "tile_n": tuple(range(64, 193, tiles.GRANULE)),
            "mma_pv_is_rs": (True, False),
            "intra_wg_overlap": (True, False),
        }
        if problem.mask.pattern in mask_form.FORMS_OF_ITS_OWN:
            space["mask_form"] = (mask_form.BLOCKS, mask_form.NATIVE)
        return space

    def resources(self, case: Case) -> tuple[Resource, ...]:
        """By arch and pass; empty for tiles that make no kernel."""
        return models.resources_of(case)

    def grid(self, case: Case) -> int | None:
        """Forward has a block per query tile, where heads of a group may share the rows; backward one per key tile."""
        if not models.covers(case):
            return None
        problem = case.problem
        if case.pass_name == "backward":  # noqa: S105 - not a password
            return ceil_div(problem.seqlen_k, int(case.config["tile_n"])) * problem.num_heads_q * problem.batch_size
        call = Call(case)
        heads = problem.num_heads_kv if call.pack_gqa else problem.num_heads_q
        return ceil_div(call.packed_rows, call.tile_m) * heads * problem.batch_size

    def cannot_run(self, case: Case) -> str | None:
        """Switches that only other programs pass to the kernel."""
        if case.problem.varlen:
            return f"problem.varlen is {', '.join(case.problem.varlen)}, and attnctl has no ragged batches to run"
        for name, value in case.config.items():
            if name not in LAUNCHED[case.pass_name] and value is not None:
                return f"config.{case.pass_name}.{name} is {value}, which attnctl does not pass to the kernel"
        return None

    def cannot_compile(self, case: Case) -> str | None:
        if case.arch not in TARGETS:
            return f"attnctl compiles fa4 for {join_words(TARGETS, 'and')}, not for {case.arch}"
        return None

    def kernel_key(self, case: Case) -> Hashable:
        packs = case.pass_name == "forward" and case.config.get("pack_gqa") is not False  # noqa: S105 - not a password
        return tiles.kernel_key(case.problem, case.config, packs=packs)

    def predicted_cost(self, case: Case) -> float:
        if not models.covers(case):
            return 0.0
        backwards = case.pass_name == "backward"  # noqa: S105 - not a password
        predicted = backward_cost.predicted_cost if backwards else cost.predicted_cost
        return predicted(case.problem, case.config, case.sparse_block)


FAMILY = Fa4()
