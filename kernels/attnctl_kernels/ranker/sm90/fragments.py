"""Arithmetic on register fragments of one warp group's 64 rows.

A thread holds two rows, 8 apart, of an accumulator, and of a row the column pairs ``8 j + 2 quad``. Element ``i`` in
memory order is column ``8 (i // 4) + 2 quad + i % 2`` of row ``i // 2 % 2``, in accumulators and in A operands alike.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import BFloat16, Float32, Int32, cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.nvgpu import warp, warpgroup
from cutlass.cutlass_dsl import T, dsl_user_op

SLACK = 8.0  # in powers of 2
LOWEST = -1e30


def flat(x: cute.Tensor) -> cute.Tensor:
    return cute.make_tensor(x.iterator, cute.make_layout(cute.size(x)))


def transposed(x: cute.Tensor) -> cute.Tensor:
    return cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 0, *range(2, cute.rank(x))]))


def row_elements(x: cute.Tensor, row: int) -> list[int]:
    return [i for i in range(cute.size(x)) if i // 2 % 2 == row]


def multiply(mma: cute.TiledMma, acc: cute.Tensor, a: cute.Tensor, b: cute.Tensor, accumulate: bool) -> None:
    """Issue ``acc (+)= a @ b`` as one group of wgmma; the caller waits for it."""
    warpgroup.fence()
    atom = cute.make_mma_atom(mma.op)
    atom.set(warpgroup.Field.ACCUMULATE, accumulate)
    for k in range(cute.size(a.shape[2])):
        cute.gemm(atom, acc, a[None, None, k], b[None, None, k], acc)
        atom.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()


class Flight:
    """Products that a warp group has issued: they end in that order, so that each can be waited for."""

    def __init__(self) -> None:
        self._issued = 0

    def multiply(self, *product: Any) -> int:
        multiply(*product)
        self._issued += 1
        return self._issued

    def wait(self, product: int) -> None:
        warpgroup.wait_group(self._issued - product)


@cute.jit
def hide_before(S: cute.Tensor, limits: list[Int32]):
    """Set the columns before a row's limit, counted from the thread's first one, to minus infinity."""
    s = flat(S)
    for i in cutlass.range_constexpr(cute.size(s)):
        s[i] = s[i] if 8 * (i // 4) + i % 2 >= limits[i // 2 % 2] else -Float32.inf


@cute.jit
def hide_from(S: cute.Tensor, limits: list[Int32]):
    """Set the columns from a row's limit on, counted as above, to minus infinity."""
    s = flat(S)
    for i in cutlass.range_constexpr(cute.size(s)):
        s[i] = s[i] if 8 * (i // 4) + i % 2 < limits[i // 2 % 2] else -Float32.inf


def cap(S: cute.Tensor, scale: Float32 | None) -> None:
    """``tanh(scale S)``, which the logits are then a multiple of; the hardware's, to 11 bits. Nothing without a cap."""
    if scale is None:
        return
    s = flat(S)
    for i in range(cute.size(s)):
        s[i] = capped(s[i], scale)


def capped(score: Float32, scale: Float32) -> Float32:
    return cute.math.tanh(score * scale, fastmath=True)


def start(row_max: cute.Tensor, row_sum: cute.Tensor) -> None:
    """Of rows that have seen nothing: a maximum below every score, and finite, so that differences are numbers."""
    row_max.fill(LOWEST)
    row_sum.fill(0.0)


@cute.jit
def softmax(S: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, correction: cute.Tensor, scale_log2: Float32):
    """Replace scores by exp(score - row maximum so far); ``correction`` is what earlier sums must be multiplied by.

    ``row_sum`` is this thread's part of the sum. Every block has a visible key, so that a maximum is finite.
    """
    s = flat(S)
    for r in cutlass.range_constexpr(2):
        elements = row_elements(s, r)
        largest = cute.arch.fmax(_largest([s[i] for i in elements]), row_max[r])
        largest = cute.arch.warp_reduction_max(largest, threads_in_group=4)
        correction[r] = cute.math.exp2((row_max[r] - largest) * scale_log2, fastmath=True)
        row_max[r] = largest
        offset = largest * scale_log2
        for i in elements:
            s[i] = cute.math.exp2(s[i] * scale_log2 - offset, fastmath=True)
        row_sum[r] = row_sum[r] * correction[r] + _sum([s[i] for i in elements])


def weigh_and_settle(
    S: cute.Tensor, P: cute.Tensor, O: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, part: cute.Tensor,
    correction: cute.Tensor, scale_log2: Float32,
) -> None:  # fmt: skip
    """Weights of a block, and its part of the sums."""
    exceeds = weigh(S, P, row_max, part, scale_log2)
    settle(exceeds, S, P, O, row_max, row_sum, part, correction, scale_log2)


@cute.jit
def weigh(
    S: cute.Tensor, P: cute.Tensor, row_max: cute.Tensor, part: cute.Tensor, scale_log2: Float32
) -> cutlass.Boolean:
    """Weights ``P`` from scores against the maximum as it was, and this thread's ``part`` of their sums.

    A maximum need not be exact: while no score exceeds it by more than a factor of 2^8, neither fp32 sums nor 16-bit
    weights lose precision, and nothing needs correcting. So no exponential waits for the maximum of its block, nor for
    other threads. Returns whether a score in this warp does exceed it: weights and sums are then void.
    """
    s, p = flat(S), cute.recast_tensor(flat(P), Int32)
    exceeds = cutlass.Boolean(False)
    for r in cutlass.range_constexpr(2):
        elements = row_elements(s, r)
        offset = row_max[r] * scale_log2
        weights = [cute.math.exp2(s[i] * scale_log2 - offset, fastmath=True) for i in elements]
        for n in cutlass.range_constexpr(0, len(elements), 2):
            p[elements[n] // 2] = _pack(weights[n], weights[n + 1], P.element_type)
        part[r] = _sum(weights)
        exceeds = exceeds or _largest([s[i] for i in elements]) * scale_log2 - offset > SLACK
    return cute.arch.vote_any_sync(exceeds)


@cute.jit
def settle(
    exceeds: cutlass.Boolean, S: cute.Tensor, P: cute.Tensor, O: cute.Tensor, row_max: cute.Tensor,
    row_sum: cute.Tensor, part: cute.Tensor, correction: cute.Tensor, scale_log2: Float32,
):  # fmt: skip
    """Take the parts of the sums; or, where a score exceeds a maximum, raise the maxima and weigh anew."""
    if exceeds:
        softmax(S, row_max, row_sum, correction, scale_log2)
        round_to(S, P)
        o = flat(O)
        for i in cutlass.range_constexpr(cute.size(o)):
            o[i] = o[i] * correction[i // 2 % 2]
    else:
        for r in cutlass.range_constexpr(2):
            row_sum[r] = row_sum[r] + part[r]


def _largest(values: list[Float32]) -> Float32:
    lanes = list(values[:4])
    for n, value in enumerate(values[4:]):
        lanes[n % 4] = cute.arch.fmax(lanes[n % 4], value)
    return cute.arch.fmax(cute.arch.fmax(lanes[0], lanes[1]), cute.arch.fmax(lanes[2], lanes[3]))


def _sum(values: list[Float32]) -> Float32:
    lanes = list(values[:4])
    for n, value in enumerate(values[4:]):
        lanes[n % 4] = lanes[n % 4] + value
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


def round_to(source: cute.Tensor, target: cute.Tensor) -> None:
    """fp32 to 16 bits, two at a time."""
    s = flat(source)
    t = cute.recast_tensor(flat(target), Int32)
    for i in range(cute.size(t)):
        t[i] = _pack(s[2 * i], s[2 * i + 1], target.element_type)


@cute.jit
def score_diagonal(
    operands: Any, own_score: cute.Tensor, row_max: cute.Tensor, row_sum: cute.Tensor, row: Int32, bounds: Any,
    thread: Int32, before_cap: Float32 | None,
):  # fmt: skip
    """Score each row's own key: the first maximum of every row, and for candidates also the first sum, 1.

    A history row meets its own key again among the others, so that its maximum is a score that it sees, too.
    ``own_score`` is minus infinity for rows that are no candidates.
    """
    h_lo, h_hi, c_lo, c_hi = bounds
    dots = _dot_rows(operands, thread)
    for r in cutlass.range_constexpr(2):
        here = row + 8 * r
        # History wins where the two overlap: such a row sees its own key there already.
        candidate = c_lo <= here and here < c_hi and (here < h_lo or h_hi <= here)
        row_max[r] = dots[r]
        if cutlass.const_expr(before_cap is not None):
            row_max[r] = capped(row_max[r], before_cap)
        own_score[r] = row_max[r] if candidate else -Float32.inf
        row_sum[r] = Float32(1.0) if candidate and thread % 4 == 0 else Float32(0.0)


@cute.jit
def _dot_rows(operands: Any, thread: Int32) -> list[Float32]:
    """Dot products of a thread's two rows with those beside them in the other operand.

    Of 16 x 16 products of a warp's rows only the diagonal is used, and yet this takes a fifth of the instructions of
    multiplying elements.
    """
    q, k = (cute.local_tile(x, (16, x.shape[1]), (thread // 32, 0)) for x in operands)
    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(q.element_type, Float32, (16, 8, 16)), permutation_mnk=(16, 16, 16))
    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(transpose=False, num_matrices=4), q.element_type)
    lane = thread % 32
    thr, load_q, load_k = (
        x.get_slice(lane) for x in (mma, cute.make_tiled_copy_A(load, mma), cute.make_tiled_copy_B(load, mma))
    )
    a, b = mma.make_fragment_A(thr.partition_A(q)), mma.make_fragment_B(thr.partition_B(k))
    squares = cute.make_rmem_tensor(thr.partition_shape_C((16, 16)), Float32)
    squares.fill(0.0)
    for i in cutlass.range_constexpr(cute.size(a.shape[2])):
        cute.copy(load_q, load_q.partition_S(q)[None, None, i], load_q.retile(a)[None, None, i])
        cute.copy(load_k, load_k.partition_S(k)[None, None, i], load_k.retile(b)[None, None, i])
        cute.gemm(mma, squares, a[None, None, i], b[None, None, i], squares)
    # Row r of eight has its own column, r, in the r % 2nd element of the thread with r // 2 pairs before it.
    first, second = squares[None, 0, 0], squares[None, 0, 1]
    odd, holder = lane // 4 % 2 == 1, lane // 4 * 4 + lane // 8
    own = (first[1] if odd else first[0]), (second[3] if odd else second[2])
    return [cute.arch.shuffle_sync(x, holder) for x in own]


def add_rows(O: cute.Tensor, weight: cute.Tensor, values: cute.Tensor) -> None:
    """``O += weight values``."""
    o, v = flat(O), flat(values)
    for i in range(cute.size(o)):
        o[i] = o[i] + v[i].to(Float32) * weight[i // 2 % 2]


@cute.jit
def scale_and_round(O: cute.Tensor, factor: cute.Tensor, target: cute.Tensor):
    """``factor O`` in 16 bits; 0 where the factor is 0, whatever ``O`` holds."""
    o, t = flat(O), cute.recast_tensor(flat(target), Int32)
    for i in cutlass.range_constexpr(cute.size(t)):
        r = i % 2
        pair = _pack(o[2 * i] * factor[r], o[2 * i + 1] * factor[r], target.element_type)
        t[i] = pair if factor[r] != 0.0 else Int32(0)


@dsl_user_op
def _pack(low: Float32, high: Float32, dtype: Any, *, loc: Any = None, ip: Any = None) -> Int32:
    kind = "bf16x2" if dtype is BFloat16 else "f16x2"
    values = [Float32(x).ir_value(loc=loc, ip=ip) for x in (high, low)]
    return Int32(
        llvm.inline_asm(
            T.i32(), values, f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f",
            has_side_effects=False, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT, loc=loc, ip=ip,
        )
    )  # fmt: skip
