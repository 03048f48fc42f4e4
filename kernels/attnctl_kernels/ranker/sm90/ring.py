"""Rings of shared-memory buffers that a producer warp fills by TMA and consumer warps empty."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op


class Cursor:
    """Where one side stands in a ring: the buffer, and the parity of the passes over the ring made so far."""

    def __init__(self, stages: int, index: Int32, parity: Int32) -> None:
        self.stages = stages
        self.index = index
        self.parity = parity

    @staticmethod
    def start(stages: int) -> Cursor:
        return Cursor(stages, Int32(0), Int32(0))

    def of(self, index: Int32 | int) -> Cursor:
        """In a ring whose buffers are all used once per pass, one by each warp group: that group's."""
        return Cursor(1, Int32(index), self.parity)

    def advance(self) -> None:
        following = self.following()
        self.index, self.parity = following.index, following.parity

    def following(self) -> Cursor:
        if cutlass.const_expr(self.stages == 1):
            return Cursor(1, self.index, self.parity ^ 1)
        following = self.index + 1
        wraps = Int32(following == self.stages)
        return Cursor(self.stages, following * (1 - wraps), self.parity ^ wraps)

    def __extract_mlir_values__(self) -> list[Any]:
        return [self.index.ir_value(), self.parity.ir_value()]

    def __new_from_mlir_values__(self, values: list[Any]) -> Cursor:
        return Cursor(self.stages, Int32(values[0]), Int32(values[1]))


class Ring:
    """Buffers with two barriers each: *full*, which TMA completes, and *empty*, one arrival per warp that reads."""

    def __init__(self, barriers: cute.Pointer, stages: int) -> None:
        self.full = barriers
        self.empty = barriers + stages
        self.stages = stages

    def __extract_mlir_values__(self) -> list[Any]:
        return cutlass.extract_mlir_values(self.full)

    def __new_from_mlir_values__(self, values: list[Any]) -> Ring:
        return Ring(cutlass.new_from_mlir_values(self.full, values), self.stages)

    def init(self, consumer_warps: int) -> None:
        for stage in range(self.stages):
            cute.arch.mbarrier_init(self.full + stage, 1)
            cute.arch.mbarrier_init(self.empty + stage, consumer_warps)

    def acquire(self, at: Cursor, num_bytes: int) -> Any:
        """Producer warp: wait until the buffer is free, announce what will come, and return the barrier to signal."""
        # The first pass over the ring finds every buffer free: the opposite parity counts as completed.
        cute.arch.mbarrier_wait(self.empty + at.index, at.parity ^ 1)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(self.full + at.index, num_bytes)
        return self.full + at.index

    def wait_released(self, at: Cursor) -> None:
        """Producer warp: wait until what it has put there has been used."""
        cute.arch.mbarrier_wait(self.empty + at.index, at.parity)

    def wait(self, at: Cursor) -> None:
        cute.arch.mbarrier_wait(self.full + at.index, at.parity)

    @cute.jit
    def release(
        self,
        at: Cursor,
        also: cutlass.Constexpr | cutlass.Boolean = False,
        other: Ring | None = None,
        other_at: Cursor | None = None,
    ):
        """Consumer warp: all of its reads are done, and ``also`` those of a buffer of another ring."""
        cute.arch.sync_warp()
        _arrive(self.empty + at.index, True)
        if cutlass.const_expr(other is not None):
            _arrive(other.empty + other_at.index, also)


@dsl_user_op
def _arrive(barrier: cute.Pointer, wanted: Any, *, loc: Any = None, ip: Any = None) -> None:
    """One lane of the warp arrives, if ``wanted``: by a predicate, as ptxas moves what follows a branch ahead of it.

    The producer waits for the arrival, and the arithmetic that follows does not.
    """
    operands = [barrier.toint(loc=loc, ip=ip).ir_value(loc=loc, ip=ip), Int32(wanted).ir_value(loc=loc, ip=ip)]
    llvm.inline_asm(
        None, operands,
        "{ .reg .pred p, q; elect.sync _|p, 0xffffffff; setp.ne.and.s32 q, $1, 0, p; "
        "@q mbarrier.arrive.shared::cta.b64 _, [$0]; }", "r,r,~{memory}",
        has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip,
    )  # fmt: skip
