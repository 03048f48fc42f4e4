"""Rules of the backward pass of the ``ranker`` family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attnctl_kernels.contract import Case, PassName
from attnctl_kernels.ranker import backward_config as own
from attnctl_kernels.ranker.backward_spec import covers
from attnctl_kernels.ranker.config import ROWS, SMEM_LIMIT
from attnctl_kernels.ranker.values import not_one_of
from attnctl_kernels.rule import Fix, Severity, Violation, rule

BACKWARD: tuple[PassName, ...] = ("backward",)


@rule("RANKER-B001", passes=BACKWARD, why="a part of shared memory has 64 rows, and dS of more than two does not fit")
def backward_tile_m_is_not_whole_parts(case: Case) -> Iterator[Violation]:
    """The query rows of a backward step are not one or two parts.

    What: `config.backward.tile_m` is 64 or 128.

    Why: A wgmma has 64 rows, and a step computes dQ of its rows at the end, from dS in shared memory.

    Fix: The nearest of them: 80 -> 64 or 128.
    """
    yield from not_one_of(case, "tile_m", own.TILES_M)


@rule("RANKER-B002", passes=BACKWARD, why="a consumer warp group owns 64 keys, and three have too few registers")
def backward_tile_n_is_not_whole_warp_groups(case: Case) -> Iterator[Violation]:
    """The keys of a backward block are not those of one or two warp groups.

    What: `config.backward.tile_n` is 64 or 128; above head_dim 128 it is 64.

    Why: A warp group holds dK and dV of its 64 keys in registers: 64 or 128 per thread, beside the 80 of S, dP and P.
    With three groups a thread has 160. Above head_dim 128 two groups share 64 keys, each with half of the columns.

    Fix: The nearest of them: 96 -> 64 or 128.
    """
    yield from not_one_of(case, "tile_n", own.tiles_n(case.problem.head_dim))


@rule("RANKER-B003", passes=BACKWARD, why="a step begins the next one, and more than six buffers never fit")
def number_of_backward_stages_without_a_kernel(case: Case) -> Iterator[Violation]:
    """A ring of one stage, or of more than six.

    What: `config.backward.stages` is 2 to 6.

    Why: A stage holds Q, dO, LSE and delta of a step. A step ends with the scores of the next one, while its own
    queries are still read: with one stage it would wait for ever.

    Fix: 2.
    """
    yield from not_one_of(case, "stages", own.STAGES)


@rule("RANKER-B004", passes=BACKWARD, why="a block has 227 KiB")
def backward_shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """Keys, rings, dS and dQ need more shared memory than a block can have.

    What: `2 * (tile_n * width + (tile_n + 2 * stages * tile_m) * head_dim + 2 * tile_m * tile_n) + 512 * tile_n +
    8 * stages * tile_m + 8 * (2 + 2 * stages)`, rounded up to 1024, is at most 232448. `width` is `head_dim`, rounded
    up to 64: keys are stored as wide as whole squares of dQ. At head_dim 256 dO has a stage less than Q, and
    `2 * (stages - 1)` barriers of its own.

    Why: K and V of a block, the ring of Q and dO with LSE and delta, two buffers of dS, and of a piece of dQ per
    warp group, lie in shared memory together. The launch fails where they do not fit.

    Fix: The largest number of stages that fits, or a smaller tile. At head_dim 128, 64 x 128 with three stages needs
    264192 bytes; with two, 231424.
    """
    if not covers(case):
        return
    used = own.smem_bytes(case.problem.head_dim, case.config)
    if used > SMEM_LIMIT:
        fixes = tuple(_fitting(case))
        message = f"the kernel needs {used} bytes of shared memory, the limit is {SMEM_LIMIT}"
        yield Violation("config.stages", message, fixes, "" if fixes else "lower stages and tile_m together")


@rule("RANKER-B005", passes=BACKWARD, why="the warp groups divide a step's dQ in whole pieces")
def dq_does_not_divide_among_warp_groups(case: Case) -> Iterator[Violation]:
    """A step has less dQ than warp groups to compute it.

    What: `tile_m / 64 * width / 64` is a multiple of `tile_n / 64`, where `width` is `head_dim`, rounded up to 64.

    Why: Up to head_dim 128 a warp group computes whole squares of 64 rows and 64 columns of dQ: half a square would be
    half of a swizzled line, and of a wgmma's rows. At head_dim 64 a step of 64 rows is one square. Above 128 there is
    enough for two groups in every step.

    Fix: `tile_m: 128`, or `tile_n: 64`.
    """
    if not covers(case):
        return
    head_dim, config = case.problem.head_dim, case.config
    pieces, groups = own.pieces(head_dim, config), own.warp_groups(head_dim, config)
    if pieces % groups:
        fixes = Fix("config.tile_m", ROWS * groups), Fix("config.tile_n", ROWS)
        message = f"dQ of a step is {pieces} square, and there are {groups} warp groups"
        yield Violation("config.tile_m", message, fixes)


@rule(
    "RANKER-B006",
    severity=Severity.WARNING,
    passes=BACKWARD,
    why="what does not fit is spilled to local memory, and the compiler then waits for every product",
)
def backward_registers_exceeded(case: Case) -> Iterator[Violation]:
    """Gradients, scores and weights take more registers than a consumer thread has.

    What: `head_dim + 80`, 16 more where `tile_m` is 128, and 32 more at head_dim 64, is at most 208. Above head_dim 128
    half of it counts.

    Why: A thread holds 1/128 of dK and dV of 64 keys in float32, of S and dP of 64 x 64 in float32, and of P in 16
    bits; with two parts per step also of dS of the first, which is still being multiplied, and at head_dim 64 also of
    K and V. `setmaxnreg` gives it 240 registers, of which 32 go to addresses, LSE and delta.

    Fix: `tile_m: 64`.
    """
    if not covers(case):
        return
    head_dim, config = case.problem.head_dim, case.config
    held, limit = own.fragment_registers(head_dim, config), own.register_limit(head_dim, config)
    if held > limit:
        message = f"dK, dV, S, dP and P take {held} registers per thread, {limit} are free"
        yield Violation("config.tile_m", message, (Fix("config.tile_m", ROWS),))


@rule("RANKER-B007", passes=BACKWARD, why="a row's own key has the row's number")
def backward_lengths_differ(case: Case) -> Iterator[Violation]:
    """Fewer or more keys than queries, in the backward pass of history and candidates.

    What: With `history_candidate`, `seqlen_q` is `seqlen_k`.

    Why: History, candidates and padding are rows of one sequence. A row's key, its value and their gradients have the
    row's number.

    Fix: `seq_len`, or another family.
    """
    problem = case.problem
    if problem.mask.pattern == "history_candidate" and problem.seqlen_q != problem.seqlen_k:
        message = f"seqlen_q {problem.seqlen_q} is not seqlen_k {problem.seqlen_k}"
        yield Violation("problem.seqlen_q", message, (Fix("problem.seqlen_q", problem.seqlen_k),))


def _fitting(case: Case) -> Iterator[Fix]:
    """The largest value of one parameter at a time that fits."""
    alternatives: tuple[tuple[str, Sequence[Any]], ...] = (
        ("stages", own.STAGES),
        ("tile_m", own.TILES_M),
        ("tile_n", own.tiles_n(case.problem.head_dim)),
    )
    for name, values in alternatives:
        configs = [{**case.config, name: each} for each in values]
        fitting = [each[name] for each in configs if _fits(case.problem.head_dim, each)]
        yield from (Fix(f"config.{name}", each) for each in fitting[-1:])


def _fits(head_dim: int, config: dict[str, Any]) -> bool:
    return (
        own.smem_bytes(head_dim, config) <= SMEM_LIMIT
        and own.pieces(head_dim, config) % own.warp_groups(head_dim, config) == 0
    )
