"""The tiles that inductor picks by itself: torch 2.13 (`_inductor/template_heuristics/triton.py`) and 2.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from attnctl_kernels.contract import Problem

OLD = "2.5"  # of torch: no backends, no prefixed options, no masks of ragged length
DECODE_BELOW = 128  # queries: fewer go to the decoding kernel
MAX_TABLED_HEAD_DIM = 256
SMALLEST_TILE = 16  # rows or columns of a tl.dot operand
DEFAULT_SPARSE_BLOCK = 128


class ForwardTile(NamedTuple):
    block_m: int
    block_n: int
    num_stages: int
    num_warps: int


class BackwardTile(NamedTuple):
    block_m1: int
    block_n1: int
    block_m2: int
    block_n2: int
    num_stages: int
    num_warps: int


AMPERE = ("sm_80", "sm_86", "sm_89")
_16 = "16-bit"
_32 = "float32"
_Table = Mapping[tuple[str, int], ForwardTile]

_AMPERE: _Table = {
    (_32, 64): ForwardTile(128, 32, 3, 4),
    (_32, 128): ForwardTile(128, 32, 3, 4),
    (_32, 256): ForwardTile(64, 16, 3, 4),
    (_16, 64): ForwardTile(128, 64, 3, 4),
    (_16, 128): ForwardTile(128, 64, 3, 8),
    (_16, 192): ForwardTile(128, 32, 2, 8),
    (_16, 256): ForwardTile(32, 64, 3, 4),
}
_HOPPER: _Table = {
    (_32, 64): ForwardTile(128, 32, 3, 4),
    (_32, 128): ForwardTile(32, 64, 3, 4),
    (_32, 192): ForwardTile(32, 64, 1, 8),
    (_32, 256): ForwardTile(32, 32, 3, 4),
    (_16, 64): ForwardTile(128, 128, 3, 4),
    (_16, 128): ForwardTile(128, 64, 3, 8),
    (_16, 256): ForwardTile(64, 32, 3, 4),
}
_BLACKWELL: _Table = {
    **_HOPPER,
    (_32, 192): ForwardTile(32, 64, 2, 4),
    (_16, 192): ForwardTile(128, 128, 1, 8),
}
_SMALL_BLACKWELL: _Table = {
    (_32, 64): ForwardTile(128, 32, 2, 4),
    (_32, 128): ForwardTile(128, 32, 2, 4),
    (_32, 256): ForwardTile(64, 16, 2, 4),
    (_16, 64): ForwardTile(128, 64, 2, 4),
    (_16, 128): ForwardTile(128, 64, 2, 8),
    (_16, 256): ForwardTile(32, 64, 2, 4),
}
_FORWARD: Mapping[str, _Table] = {
    "sm_80": _AMPERE,
    "sm_86": _AMPERE,
    "sm_89": _AMPERE,
    "sm_90": _HOPPER,
    "sm_100": _BLACKWELL,
    "sm_103": _BLACKWELL,
    "sm_110": _SMALL_BLACKWELL,
    "sm_120": _SMALL_BLACKWELL,
}

# What max_autotune tries beside the default tile: rows x keys of the forward pass; M1, N1, M2, N2 of the backward pass.
AUTOTUNED_FORWARD = ((128, 64), (128, 128), (64, 128), (64, 64))
AUTOTUNED_BACKWARD = tuple((m, n, n, m) for m in (32, 64) for n in (32, 64) if n % m == 0)


def forward_default(problem: Problem, arch: str, version: str) -> ForwardTile:
    """The tile of the main kernel."""
    width = _32 if problem.dtype == "float32" else _16
    if problem.head_dim > MAX_TABLED_HEAD_DIM:
        return ForwardTile(32, 16, 3, 4) if width == _32 else ForwardTile(64, 32, 3, 4)
    if version != OLD:
        return _FORWARD[arch].get((width, problem.head_dim), ForwardTile(64, 64, 3, 4))
    if arch not in AMPERE and (problem.dtype, problem.head_dim) == ("float16", 128):
        return ForwardTile(128, 128, 3, 8)
    table = {key: tile for key, tile in (_AMPERE if arch in AMPERE else _HOPPER).items() if key[1] != 192}
    return table.get((width, problem.head_dim), ForwardTile(64 if width == _32 else 128, 64, 3, 4))


def backward_default(problem: Problem, arch: str, version: str) -> BackwardTile:
    """M1 x N1 for dK and dV, M2 x N2 for dQ."""
    if problem.dtype == "float32" or problem.head_dim > MAX_TABLED_HEAD_DIM:
        return BackwardTile(16, 16, 16, 16, 1, 4)
    return _old_backward(problem.head_dim, arch) if version == OLD else _backward(problem.head_dim, arch)


def _backward(head_dim: int, arch: str) -> BackwardTile:
    if arch in ("sm_90", "sm_100", "sm_103"):
        return _wide_backward(head_dim, arch)
    if head_dim < 64:
        return BackwardTile(32, 128, 128, 32, 3, 4)
    if arch in ("sm_110", "sm_120"):
        return BackwardTile(64, 64, 64, 64, 1 if head_dim >= 128 else 2, 4)
    return BackwardTile(64, 64, 64, 64, 3 if arch == "sm_86" and head_dim == 128 else 2, 4)


def _wide_backward(head_dim: int, arch: str) -> BackwardTile:
    hopper = arch == "sm_90"
    if hopper and head_dim < 64:
        return BackwardTile(64, 64, 64, 64, 3, 4)
    if head_dim <= 128:
        return BackwardTile(64, 128, 128, 64, 3, 8 if hopper else 4)
    if hopper:
        return BackwardTile(64, 64, 64, 64, 2, 4)
    return BackwardTile(64, 64, 64, 64, 1, 8 if head_dim <= 192 else 4)


def _old_backward(head_dim: int, arch: str) -> BackwardTile:
    if head_dim == 64:
        return BackwardTile(32, 128, 128, 32, 3, 4) if arch in AMPERE else BackwardTile(64, 64, 64, 64, 3, 4)
    return BackwardTile(64, 128, 128, 64, 3, 8) if head_dim == 128 else BackwardTile(64, 64, 64, 64, 2, 4)


def decode_block_m(problem: Problem) -> int:
    """Rows of the decoding kernel: all queries of all heads of a group."""
    rows = problem.seqlen_q * (problem.num_heads_q // problem.num_heads_kv)
    return max(next_power_of_two(rows), SMALLEST_TILE)


def decode_block_n(arch: str | None, block_kv: int) -> int:
    """Keys per step of the decoding kernel: never more than the sparse block."""
    return min(16 if arch == "sm_110" else 64, block_kv)


def next_power_of_two(value: int) -> int:
    return 1 << max(value - 1, 0).bit_length()


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0
