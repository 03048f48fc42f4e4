"""Rules of the ``ranker`` family."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker.backward_rules import (  # noqa: F401 - rules are found as a module's attributes
    backward_lengths_differ,
    backward_registers_exceeded,
    backward_shared_memory_exceeded,
    backward_tile_m_is_not_whole_parts,
    backward_tile_n_is_not_whole_warp_groups,
    dq_does_not_divide_among_warp_groups,
    number_of_backward_stages_without_a_kernel,
)
from attnctl_kernels.ranker.spec import by_ranges, covers
from attnctl_kernels.ranker.values import not_one_of
from attnctl_kernels.rule import Fix, Severity, Violation, rule


@rule("RANKER-001", why="a tile walks one range of keys")
def mask_is_no_range_per_row(case: Case) -> Iterator[Violation]:
    """A mask that the kernel does not have.

    What: `mask.pattern` is `history_candidate`, `dense`, `causal`, `sliding_window`, `document` or `prefix_lm`.

    Why: The kernel has no block lists and no mask function. Rows see the history and perhaps their own key, as four
    bounds per batch row say; or one range of keys each, whose ends ascend from row to row. Which blocks a tile visits,
    and which of them need masking, follows by arithmetic. Listed blocks may leave gaps.

    Fix: Another family, such as `fa4` or `flex`.
    """
    pattern = case.problem.mask.pattern
    if pattern not in own.PATTERNS:
        advice = "use family fa4 or flex for this mask"
        yield Violation("mask.pattern", f"the kernel has no mask {pattern}", advice=advice)


@rule("RANKER-002", why="fragments and shared memory are laid out for whole swizzled lines")
def head_dim_without_a_kernel(case: Case) -> Iterator[Violation]:
    """A head dimension that the kernel is not written for.

    What: `head_dim` is 64, 96, 128, 192 or 256. `head_dim_v` is the same.

    Why: A row of a tile is a whole number of swizzled lines, of 128 bytes, or of 64 at 96. The output starts as a row
    of V on the diagonal, whose score is a product of rows of Q and K: all four have the same layout.

    Fix: The next of them; pad with zeros, which changes neither scores nor the first columns of the output, and give
    `softmax_scale` the value of the real head dimension. Beyond them, another family.
    """
    problem, known = case.problem, own.HEAD_DIMS
    if problem.head_dim not in known:
        larger = [dim for dim in known if dim > problem.head_dim] or known[-1:]
        fixes = (Fix("problem.head_dim", larger[0]),) if problem.head_dim == problem.head_dim_v else ()
        advice = "" if fixes else "use family fa4, which takes different head dimensions"
        message = f"head_dim {problem.head_dim} is not {join_words(known)}"
        yield Violation("problem.head_dim", message, fixes, advice)
    elif problem.head_dim != problem.head_dim_v:
        message = f"head_dim_v {problem.head_dim_v} is not head_dim {problem.head_dim}"
        yield Violation("problem.head_dim_v", message, (Fix("problem.head_dim_v", problem.head_dim),))


@rule("RANKER-003", why="wgmma multiplies 16-bit numbers")
def dtype_without_a_kernel(case: Case) -> Iterator[Violation]:
    """Inputs that are neither bfloat16 nor float16.

    What: `dtype` is bfloat16 or float16.

    Why: Products are 16 bits by 16 bits, sums are float32. A float32 input would be rounded without a word.

    Fix: `bfloat16`.
    """
    if case.problem.dtype not in own.DTYPES:
        message = f"dtype {case.problem.dtype} is not {join_words(own.DTYPES)}"
        yield Violation("problem.dtype", message, (Fix("problem.dtype", own.DTYPES[0]),))


@rule("RANKER-004", passes=("forward",), why="a consumer warp group owns 64 rows, and a block has one to three of them")
def tile_m_is_not_whole_warp_groups(case: Case) -> Iterator[Violation]:
    """The rows of a tile are not those of one, two or three warp groups.

    What: `tile_m` is 64, 128 or 192.

    Why: A wgmma has 64 rows and belongs to one warp group of 128 threads. With the producer, three consumers fill the
    registers of an SM.

    Fix: The nearest of them: 96 -> 64 or 128.
    """
    yield from not_one_of(case, "tile_m", own.TILES_M)


@rule("RANKER-005", passes=("forward",), why="a wgmma has at most 256 columns, and P·V takes them 16 at a time")
def tile_n_is_not_a_wgmma_width(case: Case) -> Iterator[Violation]:
    """The keys of a step are not a multiple of 16 from 32 to 256.

    What: `tile_n` is 32, 48, ... 256.

    Why: A wgmma has at most 256 columns, and P·V multiplies keys 16 at a time. Below 32 a step is all barriers.

    Fix: The nearest of them: 100 -> 96 or 112.
    """
    yield from not_one_of(case, "tile_n", own.TILES_N)


@rule("RANKER-006", passes=("forward",), why="the next step is loaded while this one is multiplied")
def number_of_stages_without_a_kernel(case: Case) -> Iterator[Violation]:
    """A ring of one stage, or of more than eight.

    What: `stages` is 2 to 8.

    Why: With one buffer the tensor cores would wait for every load. More than eight never fit.

    Fix: 2.
    """
    yield from not_one_of(case, "stages", own.STAGES)


@rule("RANKER-007", passes=("forward",), why="a block has 227 KiB")
def shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """Tiles and rings need more shared memory than a block can have.

    What: `(3 * tile_m + 2 * stages * tile_n) * head_dim * 2 + 8 * (6 * tile_m / 64 + 2 * stages)`, rounded up to
    1024, is at most 232448; `2 * tile_m` where the mask has no candidates, and above head_dim 128, where K and V on the
    diagonal share a buffer.

    Why: Q, the rows of K and V on the diagonal, and the rings of K and V lie in shared memory together, with two
    barriers per buffer; the output takes the place of the values on the diagonal. Without candidates there are no keys
    on the diagonal. The launch fails where they do not fit.

    Fix: The largest `tile_n`, or number of stages, that fits. At head_dim 128, 128 x 144 with two stages needs 246784
    bytes; 128 x 128 needs 230400.
    """
    if not covers(case):
        return
    used = _smem_bytes(case)
    if used > own.SMEM_LIMIT:
        fixes = tuple(_fitting(case))
        message = f"the kernel needs {used} bytes of shared memory, the limit is {own.SMEM_LIMIT}"
        yield Violation("config.tile_n", message, fixes, "" if fixes else "lower stages and tile_n together")


@rule(
    "RANKER-008",
    severity=Severity.WARNING,
    passes=("forward",),
    why="what does not fit is spilled to local memory in every step",
)
def registers_exceeded(case: Case) -> Iterator[Violation]:
    """Scores, weights and outputs take more registers than a consumer thread has.

    What: `tile_n / 2 + tile_n / 4 + head_dim / 2` is at most 212, and 132 with three warp groups.

    Why: A thread holds 1/128 of 64 rows: scores in float32, weights in 16 bits, and the output in float32. `setmaxnreg`
    gives it 240 registers, or 160 where three warp groups share the SM; 28 go to addresses and row statistics.

    Fix: The largest `tile_n` that fits.
    """
    if not covers(case):
        return
    held, limit = own.fragment_registers(case.problem.head_dim, case.config), own.register_limit(case.config)
    if held > limit:
        head_dim = case.problem.head_dim
        fitting = [n for n in own.TILES_N if own.fragment_registers(head_dim, {**case.config, "tile_n": n}) <= limit]
        fixes = tuple(Fix("config.tile_n", n) for n in fitting[-1:])
        groups = own.warp_groups(case.config)
        message = f"S, P and O take {held} registers per thread, {limit} are free with {groups} warp groups"
        yield Violation("config.tile_n", message, fixes, "" if fixes else "lower tile_m")


@rule("RANKER-009", passes=("forward",), why="a last round is one of blocks that take tile after tile")
def balanced_without_rounds(case: Case) -> Iterator[Violation]:
    """Tiles of a last round are to be cut, and there are no rounds.

    What: `balanced` needs `persistent`.

    Why: With one block per SM, tiles that are left for a last round occupy some SMs while others are idle; `balanced`
    cuts them between warp groups, for as many blocks as there are. Without `persistent` each tile has its own block.

    Fix: `persistent: true`.
    """
    if case.config.get("balanced") and not case.config.get("persistent"):
        fixes = (Fix("config.persistent", True), Fix("config.balanced", False))
        yield Violation("config.balanced", "balanced is set, and persistent is not", fixes)


@rule("RANKER-010", passes=("forward",), why="ptxas has 128 registers per thread for a block of 512 threads")
def scores_wider_than_registers(case: Case) -> Iterator[Violation]:
    """The scores of a step do not fit into the registers that a block of three warp groups starts with.

    What: `tile_n` is at most 192 where `tile_m` is 192.

    Why: Three consumer warp groups and the one that loads are 512 threads, for each of which a kernel is compiled with
    128 registers, whatever `setmaxnreg` gives it later. A wgmma holds `tile_n / 2` of them, and from 208 on ptxas ends
    with C7602, "Insufficient registers".

    Fix: `tile_n: 192`, which RANKER-008 warns of, or `tile_m: 128`.
    """
    if not covers(case):
        return
    tile_n, most = int(case.config["tile_n"]), own.most_keys(case.config)
    if tile_n > most:
        fixes = Fix("config.tile_n", most), Fix("config.tile_m", 2 * own.ROWS)
        yield Violation("config.tile_n", f"tile_n {tile_n} is above {most}, the most with three warp groups", fixes)


def _smem_bytes(case: Case, **changes: int) -> int:
    return own.smem_bytes(case.problem.head_dim, {**case.config, **changes}, ranges=by_ranges(case.problem))


def _fitting(case: Case) -> Iterator[Fix]:
    """The largest value of one parameter at a time that fits."""
    keys = [each for each in own.TILES_N if each <= own.most_keys(case.config)]
    for name, values in (("tile_n", keys), ("stages", own.STAGES)):
        fitting = [each for each in values if _smem_bytes(case, **{name: each}) <= own.SMEM_LIMIT]
        yield from (Fix(f"config.{name}", each) for each in fitting[-1:])
