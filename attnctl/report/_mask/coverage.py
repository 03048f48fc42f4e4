"""What the mask needs against what whole blocks execute, and how the work spreads over the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnctl.report._mask.blocks import Blocks, Kind
from attnctl_kernels import masks
from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, SparseBlock
from attnctl_kernels.families import get_family

OPERATIONS = {"forward": (1, 1), "backward": (3, 2)}  # products per pair over head_dim, over head_dim_v


@dataclass(frozen=True, slots=True)
class Waves:
    """Thread blocks over the SMs of the part that people mean by the arch, one on each at a time."""

    thread_blocks: int
    num_sms: int

    @property
    def count(self) -> float:
        return self.thread_blocks / self.num_sms

    @property
    def last(self) -> float:
        """Share of the SMs that the last wave keeps busy."""
        return (self.thread_blocks % self.num_sms or self.num_sms) / self.num_sms


@dataclass(frozen=True, slots=True)
class Coverage:
    """Block counts, and operations (2 per multiply-add) over all batches and heads."""

    block: SparseBlock
    empty: int
    partial: int  # those on the diagonal included
    full: int
    diagonal: int
    fewest: int  # blocks that are not empty in the shortest row of blocks: of queries, or of keys backward
    most: int
    mean: float
    visible_pairs: int  # of one head
    executed_pairs: int
    needed_flop: int
    executed_flop: int
    pair_density: float
    waves: Waves | None
    ragged: bool  # the last blocks reach behind the ends of the sequences

    @property
    def blocks(self) -> int:
        return self.empty + self.partial + self.full

    @property
    def visited(self) -> int:
        return self.partial + self.full

    @property
    def block_density(self) -> float:
        return self.visited / self.blocks

    @property
    def waste(self) -> float:
        """Share of the executed operations that the mask throws away."""
        return 1 - self.needed_flop / self.executed_flop if self.executed_flop else 0.0


def coverage(found: Blocks) -> Coverage:
    case, (block_q, block_kv) = found.case, found.block
    problem = case.problem
    kinds = Kind.EMPTY, Kind.PARTIAL, Kind.FULL
    empty, partial, full = (int(np.count_nonzero(found.classes == kind)) for kind in kinds)
    visited = np.count_nonzero(found.classes, axis=0 if case.pass_name == "backward" else 1)  # noqa: S105
    visible = masks.count_visible(problem.mask, problem.seqlen_q, problem.seqlen_k)
    executed = (partial + full) * block_q * block_kv
    per_pair = flop_per_pair(case)
    return Coverage(
        block=found.block,
        empty=empty,
        partial=partial,
        full=full,
        diagonal=found.on_diagonal,
        fewest=int(visited.min()),
        most=int(visited.max()),
        mean=(partial + full) / len(visited),
        visible_pairs=visible,
        executed_pairs=executed,
        needed_flop=visible * per_pair,
        executed_flop=executed * per_pair,
        pair_density=visible / (problem.seqlen_q * problem.seqlen_k),
        waves=waves(case),
        ragged=bool(problem.seqlen_q % block_q or problem.seqlen_k % block_kv),
    )


def flop_per_pair(case: Case) -> int:
    """Operations for each visible pair of positions: two products forward, five backward, in all heads."""
    problem = case.problem
    over_qk, over_v = OPERATIONS[case.pass_name]
    of_one_head = 2 * (over_qk * problem.head_dim + over_v * problem.head_dim_v)
    return of_one_head * problem.batch_size * problem.num_heads_q


def waves(case: Case) -> Waves | None:
    """None where the family does not say how many thread blocks it launches, or the arch has no usual part."""
    thread_blocks = get_family(case.family).grid(case)
    num_sms = ARCHES[case.arch].num_sms if case.arch in ARCHES else 0
    return Waves(thread_blocks, num_sms) if thread_blocks and num_sms else None
