"""PAL-H: what an sm_90 device has to offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attnctl_kernels.contract import Case, Config
from attnctl_kernels.pallas_mgpu.resources import SMEM_LIMIT, Kernel, kernels
from attnctl_kernels.pallas_mgpu.rules.values import GRANULE, largest_block, number
from attnctl_kernels.rule import Fix, Severity, Violation, multiples_below, rule

MAX_WIDTH = 256  # of a wgmma, and of one copy to shared memory


@rule(
    "PAL-H001",
    why="one wgmma and one copy of a tile are at most 256 elements wide",
    upstream=(
        "N must be a multiple of 8 and <= 256",
        "Async copies only support copying <=256 elements along each dimension, got {}",
    ),
)
def block_wider_than_wgmma(case: Case) -> Iterator[Violation]:
    """A tile is wider than one wgmma, or than one copy.

    What: `block_kv`, `block_q_dkv`, `block_kv_dq` and `block_q_dq` are at most 256. 320 fails while the kernel is
    lowered.

    Why: The first three are the N of the matrix product that makes the scores. The LSE and delta of `block_q_dq` rows
    arrive in one copy each, as those of `block_q_dkv` rows do.

    Fix: 320 -> 256; PAL-H003 says whether the registers allow that.
    """
    for kernel in kernels(case):
        for name in (kernel.columns, *([kernel.rows] if kernel.name == "dQ" else [])):
            value = number(case, name)
            if value > MAX_WIDTH:
                field = f"config.{name}"
                yield Violation(field, f"{name}={value} is above {MAX_WIDTH}", (Fix(field, MAX_WIDTH),))


@rule(
    "PAL-H002",
    why="a block has 227 KiB of shared memory on sm_90",
    upstream=("Mosaic GPU kernel exceeds available shared memory: smem_bytes={} > max_smem_bytes={}",),
)
def shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """A kernel needs more shared memory than a block has.

    What: The buffers of each kernel, each rounded up to 1024 bytes, and 8 bytes per barrier are at most 232448. With
    `row = 2 * head_dim` bytes: the forward kernel keeps `2 * block_q` rows of Q and their LSE, streams `steps *
    block_kv` rows of K and of V, and needs 2048 bytes for reductions. dQ keeps `wgs * block_q_dq` rows of Q and dO
    with LSE and delta, and streams `steps * block_kv_dq` rows of K and of V. dKV keeps `wgs * block_kv_dkv` rows of K
    and V, and streams `steps * block_q_dkv` rows of Q and dO with LSE and delta. The kernels of `ranker_fa3` version 1
    begin with the tile's own keys where the ring is filled last: a ring of K or V has at least as many rows as Q, and
    dQ needs the 2048 bytes for reductions, too.

    Why: The tile of each warp group stays in shared memory, and `max_concurrent_steps` tiles of the other side
    stream through a ring beside it. Upstream finds out while the kernel is lowered.

    Fix: head_dim 128: forward 64/256 with 2 steps needs 298072, over; 64/128 needs 167000. Backward all 128 with
    two warp groups needs 264304, over; all 64 needs 133232.
    """
    for kernel in kernels(case):
        if not kernel.sized(case.config):
            continue
        used = kernel.smem_bytes(case.problem, case.config)
        if used > SMEM_LIMIT:
            yield _over(
                case,
                kernel,
                f"the {kernel.name} kernel needs {used} bytes of shared memory, {used - SMEM_LIMIT} over {SMEM_LIMIT}",
                lambda config, kernel=kernel: kernel.smem_bytes(case.problem, config) <= SMEM_LIMIT,  # type: ignore[misc]
            )


@rule(
    "PAL-H003",
    severity=Severity.WARNING,
    why="accumulators that do not fit in registers spill to local memory",
)
def registers_exceeded(case: Case) -> Iterator[Violation]:
    """The accumulators of a kernel need more registers than a thread has.

    What: Forward: `(block_q * D + 1.5 * block_q * block_kv) / 128` registers, at most 232. dQ: `(block_q_dq * D + 2
    * block_q_dq * block_kv_dq) / 128`. dKV: `(2 * block_kv_dkv * D + 2 * block_kv_dkv * block_q_dkv) / 128`.
    Backward limits are 256, 232 and 152 for 1, 2 and 3 warp groups.

    Why: 512 registers per lane are shared by the groups. Beyond the limit the compiler spills, and the kernel runs
    at a fraction of its speed: the forward kernel at 128/128, head_dim 128 reaches 292 TFLOP/s, 64/128 reaches 665.

    Fix: head_dim 128: forward 128/128 needs 320; 64/128 needs 160.
    """
    for kernel in kernels(case):
        if not kernel.sized(case.config) or number(case, kernel.columns) > MAX_WIDTH:
            continue  # a tile that PAL-H001 refuses is never compiled
        used, limit = kernel.registers(case.problem, case.config), kernel.register_limit(case.config)
        if used > limit:
            yield _over(
                case,
                kernel,
                f"the {kernel.name} kernel needs about {used} registers per thread, {used - limit} over {limit}",
                lambda config, kernel=kernel: (  # type: ignore[misc]
                    kernel.registers(case.problem, config) <= kernel.register_limit(config)
                ),
            )


def _over(case: Case, kernel: Kernel, message: str, fits: Callable[[dict[str, Any]], bool]) -> Violation:
    """A violation with every single change that fits, the largest value of each parameter."""
    config: Config = case.config
    fixes = []
    for name in (kernel.columns, kernel.rows):
        block = largest_block(number(case, name), lambda each, name=name: fits({**config, name: each}))  # type: ignore[misc]
        if block:
            fixes.append(Fix(f"config.{name}", block))
    least = {"max_concurrent_steps": 2} | ({} if kernel.name == "forward" else {"compute_wgs_bwd": 1})
    for name, lowest in least.items():
        values = (each for each in multiples_below(number(case, name)) if each >= lowest)
        value = next((each for each in values if fits({**config, name: each})), None)
        if value:
            fixes.append(Fix(f"config.{name}", value))
    return Violation(f"config.{kernel.columns}", message, tuple(fixes), "" if fixes else _last_resort(case, kernel))


def _last_resort(case: Case, kernel: Kernel) -> str:
    if number(case, kernel.rows) > GRANULE or number(case, kernel.columns) > GRANULE:
        return f"start from {kernel.rows}: {GRANULE}, {kernel.columns}: {GRANULE}"
    return f"no block avoids this at head_dim={case.problem.head_dim}: {GRANULE} is the smallest"
