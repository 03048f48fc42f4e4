"""FA4-F: the tile of the forward kernel."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.fa4 import models, resources, tiles
from attnctl_kernels.fa4.rules.values import TILES_N, nearest, runs_on_sm90, tile_fixes
from attnctl_kernels.rule import Fix, Severity, Violation, nearest_multiples, rule

OTHER_ARCHES = (*tiles.AMPERE, *tiles.BLACKWELL, "sm_120")


@rule(
    "FA4-F002",
    passes=("forward",),
    arches=OTHER_ARCHES,
    why="16 is the depth of one matrix instruction",
    upstream=(
        "Tile dimensions must be positive, got {}",
        "Tile dimensions must be multiples of 16, got {}",
    ),
)
def tile_is_not_a_multiple_of_16(case: Case) -> Iterator[Violation]:
    """A side of the forward tile is not a positive multiple of 16.

    What: `tile_m` and `tile_n` are positive multiples of 16. On sm_90, FA4-F005 and FA4-F006 ask for more.

    Why: A matrix instruction multiplies 16 columns of P with 16 rows of V. Upstream has this check in a module that
    nothing calls, so that a wrong tile gets as far as tracing and fails there with a message about layouts.

    Fix: 120 -> 112 or 128.
    """
    for name in ("tile_m", "tile_n"):
        value = case.config.get(name)
        if isinstance(value, int) and (value <= 0 or value % tiles.GRANULE):
            near = nearest_multiples(value, tiles.GRANULE) if value > 0 else (128,)
            fixes = tuple(Fix(f"config.{name}", each) for each in near)
            yield Violation(f"config.{name}", f"{name} {value} is not a positive multiple of 16", fixes)


@rule(
    "FA4-F005",
    passes=("forward",),
    arches=("sm_90",),
    why="one warp group owns 64 rows, and at most three of them compute",
    upstream=(
        "SM90 tile_m must be 64, 128, or 192, got {}",
        "assert self.num_wg_mma in [1, 2, 3]",
        "failed to partition `input` {} with `tiled_mma`",
    ),
)
def tile_m_is_not_whole_warp_groups(case: Case) -> Iterator[Violation]:
    """The rows of the forward tile are not those of one, two or three warp groups (sm_90).

    What: `tile_m` is 64, 128 or 192.

    Why: A wgmma instruction has 64 rows and belongs to a warp group of 128 threads. A block has one warp group that
    loads and up to three that compute. 96 fails while the kernel is traced ("failed to partition"), 256 in a bare
    assertion.

    Fix: 96 -> 64 or 128; 256 -> 192.
    """
    tile_m = case.config.get("tile_m")
    if isinstance(tile_m, int) and tile_m not in tiles.SM90_TILES_M:
        fixes = tuple(Fix("config.tile_m", each) for each in nearest(tile_m, tiles.SM90_TILES_M))
        yield Violation("config.tile_m", f"tile_m {tile_m} is not {join_words(tiles.SM90_TILES_M)}", fixes)


@rule(
    "FA4-F006",
    passes=("forward",),
    arches=("sm_90",),
    why="a wgmma has at most 256 columns, and P·V takes them 16 at a time",
    upstream=(
        "expects the N-mode to satisfy 8 <= N <= 256 and N % 8 == 0",
        "failed to partition `input` {} with `tiled_mma`",
    ),
)
def tile_n_is_not_a_wgmma_width(case: Case) -> Iterator[Violation]:
    """The columns of the forward tile are not a multiple of 16 up to 256 (sm_90).

    What: `tile_n` is 16, 32, ... 256.

    Why: S = Q·K' is one wgmma wide, at most 256 columns; P = softmax(S) is then the left operand of P·V, whose depth
    is 16. 72 is a legal width for S and fails in P·V, while the kernel is traced.

    Fix: 72 -> 64 or 80; 272 -> 256.
    """
    tile_n = case.config.get("tile_n")
    if isinstance(tile_n, int) and tile_n not in TILES_N:
        fixes = tuple(Fix("config.tile_n", each) for each in nearest(tile_n, TILES_N))
        yield Violation("config.tile_n", f"tile_n {tile_n} is not a multiple of 16 from 16 to 256", fixes)


@rule(
    "FA4-F007",
    passes=("forward",),
    arches=("sm_90",),
    why="the launch is refused after the kernel has been compiled",
)
def shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """The forward tile does not fit into shared memory (sm_90).

    What: Q (its room is used for O later), two stages of K and V, P where `mma_pv_is_rs` is false, and 1024 bytes for
    barriers take at most 232448 bytes: `2 * (tile_m * head_dim + 2 * tile_n * (head_dim + head_dim_v) + (tile_m *
    tile_n, unless mma_pv_is_rs)) + 1024`.

    Why: Nothing checks it before the launch. At head_dim 128 a tile of 128 x 208 compiles and needs 246784 bytes; 128
    x 192 needs 230400.

    Fix: A smaller `tile_n`; or `mma_pv_is_rs: true`, which keeps P in registers; or a smaller `tile_m`.
    """
    if not _is_modelled(case):
        return
    needed = resources.smem_bytes(case.problem, case.config)
    if needed > resources.SMEM_LIMIT:
        yield Violation(
            "config.tile_n",
            f"a tile of {case.config['tile_m']} x {case.config['tile_n']} needs {needed} bytes of shared memory, "
            f"the limit is {resources.SMEM_LIMIT}",
            tile_fixes(case.config, lambda config: resources.smem_bytes(case.problem, config) <= resources.SMEM_LIMIT),
        )


@rule(
    "FA4-F008",
    passes=("forward",),
    arches=("sm_90",),
    severity=Severity.WARNING,
    why="what does not fit is kept in local memory, which is many times slower",
)
def accumulators_spill(case: Case) -> Iterator[Violation]:
    """The accumulators of the forward tile do not fit into registers (sm_90).

    What: Per thread of the warp groups that compute, `tile_n / 2` registers for S, `head_dim_v / 2` for O, and `tile_n
    / 4` for P where `mma_pv_is_rs` and `intra_wg_overlap` are both true, are at most 232, 216 or 128 with one, two or
    three warp groups (`tile_m` 64, 128, 192).

    Why: The kernel still runs. At head_dim 128 a tile of 192 x 128 needs 160 of 128: it ran at 357 TFLOP/s on an H200
    where 128 x 128, with 160 of 216, ran at 644.

    Fix: A smaller `tile_n`, or two warp groups in place of three, or `mma_pv_is_rs: false`.
    """
    if not _is_modelled(case) or not resources.assembles(case.problem, case.config):
        return
    held = resources.accumulator_registers(case.problem, case.config)
    groups = resources.warp_groups(case.config)
    cap = resources.REGISTER_CAP[groups]
    if held > cap:
        yield Violation(
            "config.tile_n",
            f"S, P and O take {held} registers per thread, {cap} are free with {groups} warp group{'s' * (groups > 1)}",
            tile_fixes(case.config, lambda config: resources.keeps_accumulators(case.problem, config)),
        )


@rule(
    "FA4-F009",
    passes=("forward",),
    why="the kernels of this arch have no such switch",
    upstream=(
        "SM{} does not expose SM90 MMA flags",
        "SM100 forward does not expose SM90 MMA flags",
        "SM{} requires q_stage=1",
        "SM{} does not support SM100 scheduler options",
    ),
)
def switch_of_another_arch(case: Case) -> Iterator[Violation]:
    """A switch is set that the kernel of another arch has.

    What: `mma_pv_is_rs` and `intra_wg_overlap` are true on sm_90 alone. On sm_100, sm_103 and sm_110 alone `q_stage` is
    2, `seqlen_k_per_split` is given, and `use_clc`, `static_persistent`, `use_tma_o`, `use_s_ping_pong` and `use_2cta`
    are true.

    Why: The first two say how the warp groups of Hopper share their work, the others how the larger units of Blackwell
    are fed. Other kernels ignore them, so that a config which was tuned with them would not be what runs.

    Fix: Leave them out.
    """
    if case.arch != "sm_90":
        for name in ("mma_pv_is_rs", "intra_wg_overlap"):
            if case.config.get(name):
                yield _absent(case, name, False)
    if case.arch not in tiles.BLACKWELL:
        stages = case.config.get("q_stage")
        if isinstance(stages, int) and stages != 1:
            yield _absent(case, f"q_stage {stages}", 1)
        for name in ("use_clc", "static_persistent", "use_tma_o", "use_s_ping_pong", "use_2cta"):
            if case.config.get(name):
                yield _absent(case, name, False)
        if case.config.get("seqlen_k_per_split") is not None:
            yield _absent(case, "seqlen_k_per_split", None)


def _absent(case: Case, name: str, instead: int | None) -> Violation:
    field = f"config.{name.partition(' ')[0]}"
    return Violation(field, f"{name} does not exist on {case.arch}", (Fix(field, instead),))


@rule(
    "FA4-F023",
    passes=("forward",),
    arches=("sm_90",),
    why="the assembler needs the registers of a whole instruction at once",
    upstream=("Insufficient registers ({}) to compile instruction",),
)
def instruction_exceeds_registers(case: Case) -> Iterator[Violation]:
    """One matrix instruction needs more registers than a thread has at the launch (sm_90).

    What: The accumulator of one product, `head_dim_v / 2` or `tile_n / 2` registers, and about 30 beside it are at most
    168 with two warp groups (`tile_m: 128`) and 128 with three (`tile_m: 192`).

    Why: The kernel is compiled for 65536 registers over all threads of the block: with three warp groups that compute
    and one that loads, 128 per thread. Raising the limit inside the kernel does not help one instruction. At
    head_dim_v 256 every tile with 192 rows fails to compile.

    Fix: `tile_m: 128`.
    """
    if _is_modelled(case) and not resources.assembles(case.problem, case.config):
        budget = resources.LAUNCH_REGISTERS[resources.warp_groups(case.config)]
        yield Violation(
            "config.tile_m",
            f"tile_m {case.config['tile_m']} leaves {budget} registers per thread, one instruction needs "
            f"{resources.instruction_registers(case.problem, case.config)} "
            f"(head_dim_v {case.problem.head_dim_v}, tile_n {case.config['tile_n']})",
            tile_fixes(case.config, lambda config: resources.assembles(case.problem, config)),
        )


def _is_modelled(case: Case) -> bool:
    return models.covers(case) and runs_on_sm90(case.problem)
