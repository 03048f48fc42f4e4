"""A family with one config per pass, for tests of the engine: small enough to see every finding coming."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from attnctl_kernels.contract import Case, Config, Family, Frozen, PassName, Problem, Scalar, SparseBlock
from attnctl_kernels.rule import Fix, Severity, Violation, nearest_multiples, rule


class ForwardConfig(Frozen):
    tile_m: int | None = Field(None, gt=0, le=512)
    tile_n: Literal[64, 96, 128] | None = None
    overlap: bool | None = None
    tolerance: float | None = None
    schedule: Literal["static", "dynamic"] | None = None


class BackwardConfig(Frozen):
    tile_m: int | None = None
    subtile_factor: int | None = None


class Toy(Family):
    name = "toy"
    title = "a family for tests"
    versions = ("1", "2")
    arches = ("sm_90", "sm_100")
    passes = ("forward", "backward")

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return ForwardConfig if pass_name == "forward" else BackwardConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        # A table per arch: asking about another one is a bug of the caller.
        tile_m = {"sm_90": 128, "sm_100": 256}[arch or ""]
        return {"tile_m": tile_m, "tile_n": 128} if pass_name == "forward" else {"tile_m": 64, "subtile_factor": 1}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {"tile_m": (64, 128)}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Config) -> SparseBlock | None:
        return int(config["tile_m"]), 128


@rule("TOY-001", why="a tile is never cut", passes=("forward",))
def ragged_queries(case: Case) -> Iterator[Violation]:
    """Queries in whole tiles."""
    length, tile = case.problem.seqlen_q, int(case.config["tile_m"])
    fixes = tuple(
        Fix("problem.seqlen_q", each, f"{abs(each - length)} tokens") for each in nearest_multiples(length, tile)
    )
    if fixes:
        fixes += tuple(Fix("config.tile_m", each) for each in (8, 4) if length % each == 0)
        yield Violation("problem.seqlen_q", f"seqlen_q={length} is not a multiple of tile_m={tile}", fixes)


@rule("TOY-002", why="dK is summed over whole sparse blocks", passes=("backward",), severity=Severity.WARNING)
def subtile_off(case: Case) -> Iterator[Violation]:
    """The sparse block is the tile times the factor."""
    rows = int(case.config["tile_m"]) * int(case.config["subtile_factor"])
    if case.sparse_block and case.sparse_block[0] != rows:
        fixes = (Fix("sparse_block", [rows, case.sparse_block[1]]),)
        yield Violation("sparse_block", f"sparse block {case.sparse_block[0]} is not {rows}", fixes)


@rule("TOY-003", why="the file would be too good", arches=("sm_100",))
def large_heads(case: Case) -> Iterator[Violation]:
    """head_dim at most 128."""
    if case.problem.head_dim > 128:
        yield Violation("config.tile_n", f"head_dim {case.problem.head_dim}", advice="use sm_90")


FAMILY = Toy()
