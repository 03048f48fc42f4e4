"""FA4-F010 to F013: the tile of the forward kernel on sm_100, sm_103 and sm_110."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import blackwell, tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import TILES_N, has_blackwell_kernel
from attnctl_kernels.rule import Fix, Violation, rule

LEAST_TILE_N = 32
STAGES = (1, 2)


@rule(
    "FA4-F010",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="128 rows are the four warps of a softmax group, 32 lanes of tensor memory each",
    upstream=(
        "SM100 forward requires tile_m=128, got {}",
        "SM100 q_stage must be 1 or 2, got {}",
        "expects the M-mode to be 64 or 128, but got {}",
    ),
)
def tile_m_is_not_128(case: Case) -> Iterator[Violation]:
    """The query tile, or the number of query tiles per program, is not one that the kernel has (sm_100 to sm_110).

    What: `tile_m` is 128, and `q_stage` 1 or 2.

    Why: A matrix instruction has 128 rows there, and each of one or two softmax groups owns one such tile. 64 rows
    overrun the row statistics; 256 fail while the kernel is traced.

    Fix: 64 or 256 -> 128. More rows per program: `q_stage: 2`.
    """
    tile_m, stages = case.config.get("tile_m"), case.config.get("q_stage")
    if isinstance(tile_m, int) and tile_m != 128:
        yield Violation("config.tile_m", f"tile_m {tile_m} is not 128", (Fix("config.tile_m", 128),))
    if isinstance(stages, int) and stages not in STAGES:
        fix = Fix("config.q_stage", min(STAGES, key=lambda each: abs(each - stages)))
        yield Violation("config.q_stage", f"q_stage {stages} is not 1 or 2", (fix,))


@rule(
    "FA4-F011",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="S and O stay in tensor memory",
    upstream=("S and O accumulators exceed the 512 TMEM columns", "assert self.tmem_total <= self.tmem_alloc_cols"),
)
def tensor_memory_exceeded(case: Case) -> Iterator[Violation]:
    """The accumulators of the forward tile do not fit into tensor memory (sm_100 to sm_110).

    What: Two tiles of scores and one output per query stage, `2 * tile_n + q_stage * head_dim_v` (head_dim_v rounded up
    to 16), take at most 512 columns.

    Why: Tensor memory has 512 columns of 128 lanes. At head_dim 128 with two query stages, `tile_n` 128 takes 256 + 256
    = 512 and 160 takes 576. The kernel says so in a bare assertion.

    Fix: head_dim 128: at most `tile_n: 128` with `q_stage: 2`, 192 with `q_stage: 1`.
    """
    call = Call(case)
    if call.get("qv") or not call.tile_n or call.q_stage not in STAGES or not has_blackwell_kernel(*call.dims):
        return
    used = blackwell.tmem_columns(case.problem, call.q_stage, call.tile_n)
    if used > blackwell.TMEM_COLUMNS:
        largest = (blackwell.TMEM_COLUMNS - blackwell.tmem_columns(case.problem, call.q_stage, 0)) // 2
        legal = [each for each in TILES_N if LEAST_TILE_N <= each <= largest]
        fixes = [Fix("config.tile_n", legal[-1])] if legal else []
        one_stage = blackwell.tmem_columns(case.problem, 1, call.tile_n) <= blackwell.TMEM_COLUMNS
        if call.q_stage > 1 and one_stage:
            fixes.append(Fix("config.q_stage", 1))
        message = (
            f"2 * tile_n {call.tile_n} + q_stage {call.q_stage} * head_dim_v {tiles.padded(case.problem.head_dim_v)} "
            f"= {used} columns of tensor memory, the limit is {blackwell.TMEM_COLUMNS}"
        )
        yield Violation("config.tile_n", message, tuple(fixes), "" if fixes else "use a smaller head_dim_v")


@rule(
    "FA4-F012",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="P is handed to the matrix unit 32 columns at a time",
    upstream=("Expected size in shape to be strictly positive, but got 0",),
)
def tile_n_is_below_32(case: Case) -> Iterator[Violation]:
    """The key tile is narrower than 32 (sm_100 to sm_110).

    What: `tile_n` is at least 32.

    Why: The softmax warps hand P over in parts of 32 columns, so that P·V can begin early. A tile of 16 has no part.

    Fix: 16 -> 32.
    """
    tile_n = Call(case).tile_n
    if 0 < tile_n < LEAST_TILE_N:
        fix = Fix("config.tile_n", LEAST_TILE_N)
        yield Violation("config.tile_n", f"tile_n {tile_n} is below {LEAST_TILE_N}", (fix,))


@rule(
    "FA4-F013",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="K, V and K of uneven sizes must fit beside Q",
    upstream=("Head-dim 192/128 with tile_n={} needs {} bytes of shared memory; SM100 provides {}",),
)
def uneven_stages_exceed_shared_memory(case: Case) -> Iterator[Violation]:
    """At head_dim 192 with head_dim_v 128, three stages of keys and values do not fit (sm_100 to sm_110).

    What: Where two whole stages fit, `q_o + tile_n * (2 * 192 + 128) * 2 + 2048` is at most 232448 bytes, with `q_o =
    q_stage * 128 * 192 * 2` for Q, whose room is used for O (`q_stage * 128 * 128 * 4` if that is more and the keys are
    split). With `use_2cta` each CTA holds half of K and V.

    Why: The kernel then keeps [K, V, K] in place of two equal stages, which needs a little more room than the budget it
    planned with, and nothing checks the sum before the launch. One query stage: tile_n 192 needs 247808 bytes, 176
    needs 231424.

    Fix: 192 -> 176 with `q_stage: 1`; 128 with `q_stage: 2`.
    """
    call = Call(case)
    needed = blackwell.uneven_smem_bytes(call, call.tile_n)
    if needed is None or needed <= blackwell.SMEM_LIMIT:
        return
    smaller = [each for each in TILES_N if LEAST_TILE_N <= each < call.tile_n and _fits(call, each)]
    message = f"tile_n {call.tile_n} needs {needed} bytes of shared memory, the limit is {blackwell.SMEM_LIMIT}"
    fixes = tuple(Fix("config.tile_n", each) for each in smaller[-1:])
    yield Violation("config.tile_n", message, fixes, "" if fixes else "use q_stage 1")


def _fits(call: Call, tile_n: int) -> bool:
    needed = blackwell.uneven_smem_bytes(call, tile_n)
    return needed is None or needed <= blackwell.SMEM_LIMIT
