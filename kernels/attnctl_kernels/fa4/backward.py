"""The backward kernel of sm_90 and sm_120: what its tables choose, and what that takes.

From ``_tile_size_bwd_sm90`` in ``interface.py`` and the allocations in ``flash_bwd_sm90.py`` and ``flash_bwd.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call, ceil_div

ALIGNMENT = 1024
STATISTICS_ALIGNMENT = 128
SM120_TILE = 64


@dataclass(frozen=True, slots=True)
class Sm90Backward:
    """In the words of the profile; upstream's ``BwdConfig``."""

    tile_m: int
    tile_n: int
    stages_q: int = 2
    stages_do: int = 2
    stages_pds: int = 2
    sdp_swap_ab: bool = True
    dkv_swap_ab: bool = False
    dq_swap_ab: bool = False
    atom_m_sdp: int = 1
    atom_n_dkv: int = 2
    atom_m_dq: int = 1
    num_wg: int = 2
    dq_single_wg: bool = False

    @property
    def dkv_in_registers(self) -> bool:
        """Whether P and dS go to dV and dK in registers, so that P needs no room in shared memory."""
        return self.atom_m_sdp == 1 and self.atom_n_dkv == self.num_wg and self.sdp_swap_ab and not self.dkv_swap_ab

    @property
    def groups_of_dq(self) -> int:
        return 1 if self.dq_single_wg else self.num_wg


CHANGEABLE = tuple(each.name for each in fields(Sm90Backward) if each.name not in ("tile_m", "tile_n"))


def sm90_backward(case: Case) -> Sm90Backward | None:
    """The kernel's choice with what the profile changes of it; None where that makes no kernel."""
    problem, call = case.problem, Call(case)
    chosen = _chosen(problem, call.sparse, call.tile_m, call.tile_n)
    causal, local = call.causal_and_local
    if (causal or local) and "tile_m" not in case.given and 96 < problem.head_dim <= 128:
        chosen = replace(chosen, tile_m=64)
    chosen = replace(chosen, dq_swap_ab=chosen.tile_m % 64 != 0 and 96 < problem.head_dim <= 128)
    given: dict[str, Any] = {name: case.config[name] for name in CHANGEABLE if case.config.get(name) is not None}
    changed = replace(chosen, **given)
    counts = (getattr(changed, each.name) for each in fields(Sm90Backward) if each.type == "int")
    return changed if min(counts) > 0 else None


def _chosen(problem: Problem, sparse: bool, tile_m: int, tile_n: int) -> Sm90Backward:
    if problem.head_dim <= 64:
        return Sm90Backward(tile_m, tile_n, atom_m_dq=2)
    if problem.head_dim <= 96:
        return Sm90Backward(tile_m, tile_n, dq_single_wg=True)
    if problem.head_dim <= 128:
        return Sm90Backward(tile_m, tile_n)
    if problem.head_dim <= 192:
        stages_do = 2 if problem.head_dim_v <= 128 else 1
        return Sm90Backward(tile_m, tile_n, 2, stages_do, 1, sdp_swap_ab=False, dkv_swap_ab=True)
    if sparse:
        return Sm90Backward(tile_m, tile_n, 1, 1, 1, sdp_swap_ab=False, atom_n_dkv=1)
    return Sm90Backward(tile_m, tile_n, 2, 1, 1, sdp_swap_ab=False, dkv_swap_ab=True, atom_n_dkv=1)


def sm90_dims(problem: Problem, config: Sm90Backward) -> tuple[int, int]:
    """Head dimensions as the kernel pads them."""
    step = 64 if config.dkv_swap_ab else tiles.GRANULE
    return ceil_div(problem.head_dim, step) * step, ceil_div(problem.head_dim_v, step) * step


def sm90_smem_bytes(problem: Problem, config: Sm90Backward) -> int:
    """Barriers and row statistics, then Q, V, K, dO, P, dS and the staging of dQ, each on a boundary of 1024."""
    dim, dim_v = sm90_dims(problem, config)
    rows = ceil_div(config.tile_m, 64) * 64 * 4
    size = _up(16 * (config.stages_q + config.stages_do), STATISTICS_ALIGNMENT)
    size = _up(size + rows * config.stages_q, STATISTICS_ALIGNMENT) + rows * config.stages_do
    p_or_ds = config.tile_m * config.tile_n * config.stages_pds * 2
    for bytes_ in (
        config.tile_m * dim * 2 * config.stages_q,
        config.tile_n * dim_v * 2,
        config.tile_n * dim * 2,
        config.tile_m * dim_v * 2 * config.stages_do,
        0 if config.dkv_in_registers else p_or_ds,
        p_or_ds,
        config.tile_m * dim * 4,
    ):
        size = _up(size, ALIGNMENT) + bytes_
    return _up(size, ALIGNMENT)


def sm90_registers(problem: Problem, config: Sm90Backward) -> int:
    """Accumulators per thread: S and dP, or dQ, beside dK and dV."""
    dim, dim_v = sm90_dims(problem, config)
    threads = 128 * config.num_wg
    scores = config.tile_m * config.tile_n // threads
    dq = config.tile_m * dim // (128 * config.groups_of_dq)
    return max(2 * scores, dq) + config.tile_n * dim // threads + config.tile_n * dim_v // threads


def sm120_smem_bytes(problem: Problem) -> int:
    """K, V, the stages of Q and dO, P and dS, and the row statistics of both."""
    dim, dim_v = (ceil_div(each, 32) * 32 for each in (problem.head_dim, problem.head_dim_v))
    stages = 2 if problem.head_dim <= 64 else 1
    tile = SM120_TILE
    return tile * (dim + dim_v) * 2 * (1 + stages) + 2 * tile * tile * 2 + 2 * tile * 4 * stages


def _up(size: int, step: int) -> int:
    return ceil_div(size, step) * step
