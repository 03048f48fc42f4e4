"""FA4-F021, F022, E003: the kernel of sm_80, which sm_86, sm_89 and sm_120 run too."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import resources, tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import HEAD_DIM_GRANULE, MAX_HEAD_DIM, nearest
from attnctl_kernels.rule import Fix, Violation, multiples_below, nearest_multiples, rule

ARCHES_80 = (*tiles.AMPERE, "sm_120")
THREADS = 128  # what the interface takes, whatever is asked for


@rule(
    "FA4-F021",
    passes=("forward",),
    arches=ARCHES_80,
    why="the launch is refused after the kernel has been compiled",
)
def ampere_shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """The forward tile does not fit into shared memory (sm_80, sm_86, sm_89, sm_120).

    What: Q and one stage of K and V, `(tile_m * head_dim + tile_n * (head_dim + head_dim_v)) * 2` bytes, take at most
    166912 bytes on sm_80, and 101376 on sm_86, sm_89 and sm_120.

    Why: Upstream's own check is called by nothing, and for sm_86 and sm_89 it compares with the limit of sm_80.

    Fix: sm_120 at head_dim 256: the kernel's own 128 x 64 needs 131072 bytes; 64 x 64 needs 98304.
    """
    call, limit = Call(case), ARCHES[case.arch or ""].smem_bytes
    if not call.tile_m or not call.tile_n:
        return
    needed = resources.ampere_smem_bytes(case.problem, call.tile_m, call.tile_n)
    if needed <= limit:
        return
    rows = [each for each in (128, 64) if each < call.tile_m]
    fixes = [
        Fix("config.tile_m", each)
        for each in rows
        if resources.ampere_smem_bytes(case.problem, each, call.tile_n) <= limit
    ][:1]
    fixes += [
        Fix("config.tile_n", each)
        for each in multiples_below(call.tile_n, tiles.GRANULE)
        if resources.ampere_smem_bytes(case.problem, call.tile_m, each) <= limit
    ][:1]
    message = f"a tile of {call.tile_m} x {call.tile_n} needs {needed} bytes of shared memory, the limit is {limit}"
    yield Violation("config.tile_m", message, tuple(fixes), "" if fixes else "use a smaller tile and head_dim")


@rule(
    "FA4-F022",
    passes=("forward",),
    arches=ARCHES_80,
    why="four warps share the rows of a tile evenly",
    upstream=("failed to partition `input` {} with `tiled_mma`",),
)
def rows_do_not_suit_the_threads(case: Case) -> Iterator[Violation]:
    """The rows of the forward tile do not go evenly to the threads (sm_80, sm_86, sm_89, sm_120).

    What: `num_threads` is 128, and twice `tile_m` is a multiple of it.

    Why: The interface sets 128 threads on these arches, whatever was asked for. 48 rows fail while the kernel is traced
    ("failed to partition"); 32 compile, and upstream's own check, which nothing calls, rejects them.

    Fix: 48 -> 64. `num_threads: 256` -> 128, or leave it out.
    """
    threads, tile_m = case.config.get("num_threads"), Call(case).tile_m
    if isinstance(threads, int) and threads != THREADS:
        message = f"num_threads {threads} is not {THREADS}, which the kernel runs with"
        yield Violation("config.num_threads", message, (Fix("config.num_threads", THREADS),))
    if tile_m and 2 * tile_m % THREADS:
        fixes = tuple(Fix("config.tile_m", each) for each in nearest_multiples(tile_m, THREADS // 2))
        yield Violation("config.tile_m", f"twice tile_m {tile_m} is not a multiple of {THREADS} threads", fixes)


@rule("FA4-E003", arches=ARCHES_80, why="nobody checks, and rows are copied 16 bytes at a time")
def head_dim_unchecked(case: Case) -> Iterator[Violation]:
    """A head dimension that the kernel of sm_80 cannot take, and that nothing refuses.

    What: `head_dim` and `head_dim_v` are multiples of 8 from 8 to 256.

    Why: The interface checks head dimensions on sm_90 and sm_100 only. 100 and 264 compile on sm_80 and sm_120: copies
    of 16 bytes then begin in the middle of another row's 16 bytes.

    Fix: 100 -> 96 or 104; 264 -> 256.
    """
    legal = range(HEAD_DIM_GRANULE, MAX_HEAD_DIM + 1, HEAD_DIM_GRANULE)
    for name in ("head_dim", "head_dim_v"):
        dim = getattr(case.problem, name)
        if dim not in legal and (name == "head_dim" or dim != case.problem.head_dim):
            fixes = tuple(Fix(f"problem.{name}", each) for each in nearest(dim, legal))
            yield Violation(f"problem.{name}", f"{name} {dim} is not a multiple of 8 from 8 to 256", fixes)
