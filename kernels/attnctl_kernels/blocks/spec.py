"""Block-sparse attention in plain PyTorch: the family that runs on any machine, for a first tune and for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from attnctl_kernels.blocks.tiles import classify
from attnctl_kernels.contract import Case, Family, Frozen, PassName, Problem, Scalar, SparseBlock

SIZES = (16, 32, 64, 128, 256, 512)
_DEFAULT_SIZE = 64

# In multiply-adds, as fitted on a CPU: what one step's calls into PyTorch cost, and the softmax of one score.
_STEP = 2_000_000
_SOFTMAX = 64


class BlocksConfig(Frozen):
    """Both passes have the same parameters."""

    block_q: int | None = Field(None, strict=True)  # query rows per tile
    block_kv: int | None = Field(None, strict=True)  # keys per tile


class Blocks(Family):
    name = "blocks"
    title = "block-sparse attention in plain PyTorch"
    passes = ("forward", "backward")

    def sources(self) -> dict[str, str]:
        """Of this folder."""
        digest = hashlib.sha256()
        for path in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return {"blocks-sources": digest.hexdigest()[:16]}

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return BlocksConfig

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        """64 x 64, less where the sequence or the sparse block asks for less."""
        lengths = problem.seqlen_q, problem.seqlen_k
        block_q, block_kv = map(_default_size, lengths, sparse_block or (_DEFAULT_SIZE, _DEFAULT_SIZE))
        return {"block_q": block_q, "block_kv": block_kv}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        """Powers of two, up to the first that holds the whole sequence."""
        return {"block_q": _sizes(problem.seqlen_q), "block_kv": _sizes(problem.seqlen_k)}

    def sparse_block(self, problem: Problem, pass_name: PassName, config: Mapping[str, Scalar]) -> SparseBlock:
        """The lists name tiles."""
        return tile(config)

    def predicted_cost(self, case: Case) -> float:
        """Multiply-adds of the visited tiles, hidden elements of partial ones included, plus a price per step."""
        problem = case.problem
        block_q, block_kv = tile(case.config)
        steps = int((classify(problem, (block_q, block_kv), case.sparse_block) > 0).sum())
        products = {"forward": (1, 1), "backward": (3, 2)}[case.pass_name]  # of head_dim and of head_dim_v
        per_score = products[0] * problem.head_dim + products[1] * problem.head_dim_v + _SOFTMAX
        scores = problem.batch_size * problem.num_heads_q * block_q * block_kv
        return float(steps * (scores * per_score + _STEP * sum(products) // 2))


def tile(config: Mapping[str, Scalar]) -> SparseBlock:
    return int(config["block_q"]), int(config["block_kv"])


def _sizes(length: int) -> tuple[int, ...]:
    return tuple(size for size in SIZES if size == SIZES[0] or size < 2 * length)


def _default_size(length: int, sparse_block: int) -> int:
    fitting = (size for size in _sizes(length) if size <= _DEFAULT_SIZE and sparse_block % size == 0)
    return max(fitting, default=SIZES[0])


FAMILY = Blocks()
