"""The backward pass in the words of the contract: its space, resources and predicted cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Problem, Resource
from attnctl_kernels.ranker import backward_config as own
from attnctl_kernels.ranker.config import DTYPES, HEAD_DIMS, SMEM_LIMIT

TENSOR_OPS = 4096  # per SM and cycle
SMEM_BYTES = 128  # likewise
STEP_CYCLES = 150
BLOCK_CYCLES = 3000  # keys arrive, and their gradients leave, with nothing else in flight


def space() -> Mapping[str, Sequence[Any]]:
    return {"tile_m": own.TILES_M, "tile_n": own.TILES_N, "stages": own.STAGES[:3]}


def covers(case: Case) -> bool:
    """Whether the config is one that a kernel can be built for, resources aside."""
    problem, config = case.problem, case.config
    return (
        problem.head_dim == problem.head_dim_v
        and (problem.mask.pattern != "history_candidate" or problem.seqlen_q == problem.seqlen_k)
        and problem.head_dim in HEAD_DIMS
        and problem.dtype in DTYPES
        and config.get("tile_m") in own.TILES_M
        and config.get("tile_n") in own.tiles_n(problem.head_dim)
        and config.get("stages") in own.STAGES
    )


def resources(case: Case) -> tuple[Resource, ...]:
    if not covers(case):
        return ()
    head_dim, config = case.problem.head_dim, case.config
    return (
        Resource("shared memory", own.smem_bytes(head_dim, config), SMEM_LIMIT, "bytes"),
        Resource(
            "fragments per consumer thread",
            own.fragment_registers(head_dim, config),
            own.register_limit(head_dim, config),
            "registers",
        ),
    )


def grid(case: Case) -> int | None:
    """Blocks of keys; with a history only of its own, as those behind it leave at once."""
    if not covers(case):
        return None
    problem = case.problem
    return -(-_history(case) // int(case.config["tile_n"])) * problem.num_heads_kv * problem.batch_size


def predicted_cost(case: Case) -> float:
    """Cycles of an SM: what its products take of the tensor cores or of shared memory, and what lies between them."""
    if not covers(case):
        return 0.0
    problem, config, head_dim = case.problem, case.config, case.problem.head_dim
    tile_m, tile_n = int(config["tile_m"]), int(config["tile_n"])
    scores = 2 * own.column_parts(head_dim)  # S and dP, in each warp group that has the keys
    products = (scores + 3) * 2 * tile_m * tile_n * head_dim / TENSOR_OPS
    # Of 64 x 64 x 16: two operands from shared memory for S, dP and dQ, and one for dV and dK; dQ on its way out.
    dq = own.FLOAT_BYTES * tile_m * head_dim
    reads = tile_m * tile_n * head_dim // 16 * ((scores + 1) * 2 + 2) // 2 + dq
    writes = 2 * tile_m * (tile_n + 2 * head_dim) + dq
    exposed = 1.6 if own.warp_groups(head_dim, config) == 1 else 1.0
    waits = 1.6 if own.fragment_registers(head_dim, config) > own.register_limit(head_dim, config) else 1.0
    step = max(products, (reads + writes) / SMEM_BYTES) * exposed * waits + STEP_CYCLES
    steps = -(-rows_per_block(problem, tile_n) // tile_m) * problem.num_heads_q // problem.num_heads_kv
    rounds = -(-(grid(case) or 0) // ARCHES["sm_90"].num_sms)
    return rounds * (steps * step + BLOCK_CYCLES)


def rows_per_block(problem: Problem, tile_n: int) -> int:
    """That a block of keys is seen by, on average, as far as that is known without the mask's tables."""
    mask, rows = problem.mask, problem.seqlen_q
    if mask.pattern == "sliding_window":
        return min((mask.window or rows) + tile_n, rows)
    if mask.pattern == "document":
        longest = max(mask.document_lens or (mask.document_len or rows,))
        return min(longest + tile_n, rows)
    if mask.pattern in {"causal", "prefix_lm"}:
        return (rows + (mask.prefix_len or 0) + tile_n) // 2
    return rows


def _history(case: Case) -> int:
    length = case.problem.mask.history_len
    return case.problem.seqlen_k if length is None else length
