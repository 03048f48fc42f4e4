"""Shared memory and tensor memory of tokamax's kernels, as its own `estimate_smem_bytes` counts them.

Arrays are rounded up to 1024 bytes, a barrier is 8. float32 inputs are cast to 16 bits first; the output is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from attnctl_kernels.contract import Case, Problem, Resource, Scalar
from attnctl_kernels.tokamax.values import BLACKWELL, bias_dims, is_forward, mask_dims, number, on_mosaic, up, value

SMEM_LIMIT = 227 * 1024
TMEM_COLUMNS = 512
BLACKWELL_SLACK = 1200  # what upstream's sweep adds for barriers
VJP_SLACK = 8192
ELEMENT = 2
SWIZZLE = 16  # 16-bit elements of the smallest swizzle
_BARRIER = 8


class Kernel(NamedTuple):
    """One kernel of a pass, with the parameters that size it, most effective first."""

    name: str
    knobs: tuple[str, ...]
    smem_bytes: Callable[[Case], int]
    tmem_columns: Callable[[Case], int] | None = None

    def sized(self, case: Case) -> bool:
        return all(number(case, name) for name in self.knobs)


def forward_default(problem: Problem, arch: str | None) -> dict[str, Scalar]:
    if arch in BLACKWELL:
        wide = up(max(problem.head_dim, problem.head_dim_v), 64)
        return {
            "block_q": 128,
            "block_kv": 128,
            "num_stages": max(256 // wide, 1),
            "split_k": 1,
            "num_tma_splits": 2 if wide >= 256 else 1,
            "collective": False,
        }
    persistent = problem.mask.pattern != "causal"
    small = max(problem.head_dim, problem.head_dim_v) > 128
    return {
        "block_q": 64,
        "block_kv": 64 if small else 128,
        "num_stages": 2,
        "split_k": 1,
        "persistent": persistent and not small,
    }


def backward_default(problem: Problem, arch: str | None) -> dict[str, Scalar]:
    """Mosaic's tiles, and those of the Triton kernel, which never change."""
    triton: dict[str, Scalar] = {"block_m1": 32, "block_n1": 64, "block_m2": 64, "block_n2": 32, "num_warps": 4}
    if arch not in BLACKWELL:
        names = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
        return {**dict.fromkeys(names, 64), "num_stages": 2, "compute_wgs": 2, **triton}
    side = 128 if max(problem.head_dim, problem.head_dim_v) <= 128 else 64
    blocks: dict[str, Scalar] = {"block_q_dkv": side, "block_kv_dkv": 128, "block_q_dq": 128, "block_kv_dq": side}
    return {**blocks, "num_stages": 2, "residual_stages": 2, **triton}


def _array(*shape: int, size: int = ELEMENT) -> int:
    total = size
    for each in shape:
        total *= each
    return up(total, 1024)


def _hopper_forward(case: Case) -> int:
    problem, stages = case.problem, number(case, "num_stages")
    rows, keys = number(case, "block_q"), number(case, "block_kv")
    dim, dim_v = up(problem.head_dim, SWIZZLE), up(problem.head_dim_v, SWIZZLE)
    row = 1024 // (8 * problem.element_bytes)
    row = row if dim_v % row == 0 else dim_v
    slots = min(2, rows // 64 * (dim_v // row))
    inputs = _array(2 * rows, dim) + _array(stages, keys, dim)
    outputs = _array(2, slots, 64, row, size=problem.element_bytes)
    if "backward" in case.passes:  # the forward pass of a training step also stores the softmax statistics
        outputs += 2 * _array(2, rows, size=4)
    total = (inputs + outputs) if value(case, "persistent") else max(inputs, outputs)
    total += _array(stages, keys, dim_v) + (1 + 2 * stages) * _BARRIER
    if bias_dims(case) == 2:
        total += _array(stages, 2 * rows, keys)
    if mask_dims(case) == 2:
        total += _array(stages, 2 * rows, keys, size=1) + stages * _BARRIER
    elif mask_dims(case) == 1 and keys >= 128:
        total += _array(stages, keys, size=1)
    return total


def cta_rows(case: Case) -> int:
    """Queries per CTA: a collective block is shared by two."""
    return number(case, "block_q") // (2 if value(case, "collective") else 1)


def _blackwell_forward(case: Case) -> int:
    problem, stages, keys = case.problem, number(case, "num_stages"), number(case, "block_kv")
    pair = 2 if value(case, "collective") else 1
    rows = cta_rows(case)
    dim, dim_v = up(problem.head_dim, SWIZZLE), up(problem.head_dim_v, SWIZZLE * pair)
    row = 1024 // (8 * problem.element_bytes)
    row = row if dim_v % row == 0 else dim_v
    slots = min(2, dim_v // row)
    total = max(_array(rows, dim), _array(slots, rows, row, size=problem.element_bytes))
    total += _array(stages, keys // pair, dim) + _array(stages, keys, dim_v // pair)
    total += _array(2, rows, size=4) + _array(rows, size=4)
    if bias_dims(case) == 2:
        total += _array(rows, keys)
    if mask_dims(case) == 2:
        total += _array(rows, max(keys // 8, 16), size=1)
    return total + BLACKWELL_SLACK


def _hopper_dq(case: Case) -> int:
    rows, keys = number(case, "compute_wgs") * number(case, "block_q_dq"), number(case, "block_kv_dq")
    stage = keys * _dims(case) * ELEMENT + _score_tiles(case, rows, keys)
    written = rows * keys * ELEMENT if bias_dims(case) else 0
    return rows * _dims(case) * ELEMENT + 3 * rows * 4 + written + number(case, "num_stages") * stage


def _hopper_dkv(case: Case) -> int:
    rows, keys = number(case, "block_q_dkv"), number(case, "compute_wgs") * number(case, "block_kv_dkv")
    stage = rows * _dims(case) * ELEMENT + 3 * rows * 4 + _score_tiles(case, rows, keys)
    return keys * _dims(case) * ELEMENT + number(case, "num_stages") * stage


def _blackwell_dq(case: Case) -> int:
    rows, keys, stages = number(case, "block_q_dq"), number(case, "block_kv_dq"), number(case, "num_stages")
    written = rows * keys * ELEMENT if bias_dims(case) else 0
    return (rows + stages * keys) * _dims(case) * ELEMENT + _score_tiles(case, rows, keys) + written + VJP_SLACK


def _blackwell_dkv(case: Case) -> int:
    rows, keys, stages = number(case, "block_q_dkv"), number(case, "block_kv_dkv"), number(case, "num_stages")
    statistics = _array(3, number(case, "residual_stages"), rows, size=4)
    operands = (keys + stages * rows) * _dims(case) * ELEMENT
    return operands + statistics + _score_tiles(case, rows, keys) + VJP_SLACK


def _dims(case: Case) -> int:
    return up(case.problem.head_dim, 64) + up(case.problem.head_dim_v, 64)


def _score_tiles(case: Case, rows: int, keys: int) -> int:
    """A bias and a mask with both sequence dimensions."""
    return rows * keys * ((ELEMENT if bias_dims(case) == 2 else 0) + (1 if mask_dims(case) == 2 else 0))


def _forward_tmem(case: Case) -> int:
    """Scores, two slots of 16-bit probabilities, and the output."""
    return 2 * number(case, "block_kv") + up(case.problem.head_dim_v, SWIZZLE)


def _dq_tmem(case: Case) -> int:
    return 2 * number(case, "block_kv_dq") + up(case.problem.head_dim, 64)


def _dkv_tmem(case: Case) -> int:
    return 2 * number(case, "block_q_dkv") + _dims(case)


_FORWARD_KNOBS = ("num_stages", "block_kv", "block_q")
_HOPPER = {
    True: (Kernel("forward", _FORWARD_KNOBS, _hopper_forward),),
    False: (
        Kernel("dQ", ("num_stages", "block_kv_dq", "block_q_dq", "compute_wgs"), _hopper_dq),
        Kernel("dKV", ("num_stages", "block_q_dkv", "block_kv_dkv", "compute_wgs"), _hopper_dkv),
    ),
}
_BLACKWELL = {
    True: (Kernel("forward", _FORWARD_KNOBS, _blackwell_forward, _forward_tmem),),
    False: (
        Kernel("dQ", ("num_stages", "block_kv_dq", "block_q_dq"), _blackwell_dq, _dq_tmem),
        Kernel("dKV", ("num_stages", "block_q_dkv", "block_kv_dkv", "residual_stages"), _blackwell_dkv, _dkv_tmem),
    ),
}


def kernels(case: Case) -> tuple[Kernel, ...]:
    """The Mosaic kernels that the case runs, where all their parameters make sense."""
    if not on_mosaic(case):
        return ()
    family = _BLACKWELL if case.arch in BLACKWELL else _HOPPER
    return tuple(each for each in family[is_forward(case)] if each.sized(case))


def table(case: Case) -> tuple[Resource, ...]:
    rows = []
    for kernel in kernels(case):
        rows.append(Resource(f"shared memory, {kernel.name} kernel", kernel.smem_bytes(case), SMEM_LIMIT, "bytes"))
        if kernel.tmem_columns:
            columns = kernel.tmem_columns(case)
            rows.append(Resource(f"tensor memory, {kernel.name} kernel", columns, TMEM_COLUMNS, "columns"))
    return tuple(rows)
