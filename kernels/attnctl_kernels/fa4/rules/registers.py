"""FA4-R: how the registers of a block are dealt out to its warp groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.rule import Fix, Violation, rule

HOPPER = {"mma_registers": 240, "producer_registers": 24}  # of two warp groups that compute
BLACKWELL = {"softmax_registers": 192, "correction_registers": 80, "other_registers": 48}
COUNTS = range(24, 257, 8)
BUDGET = 512  # 65536 registers over 128 threads
LAUNCH = 128  # per thread at launch, with 512 threads


def _form(arch: str | None) -> Mapping[str, int]:
    return HOPPER if arch == "sm_90" else BLACKWELL if arch in tiles.BLACKWELL else {}


def _split(case: Case) -> dict[str, int] | None:
    """The whole split, if it is of the arch's form and each count can be encoded."""
    split = {name: case.config.get(name) for name in _form(case.arch)}
    sound = {name: value for name, value in split.items() if isinstance(value, int) and value in COUNTS}
    return sound if sound and len(sound) == len(split) else None


def _nearest(split: Mapping[str, int], holds: Callable[[Mapping[str, int]], bool]) -> tuple[Fix, ...]:
    """For each count, the nearest value with which alone the rule holds."""
    fixes = []
    for name, value in split.items():
        working = [each for each in COUNTS if holds({**split, name: each})]
        if working:
            fixes.append(Fix(f"config.{name}", min(working, key=lambda each: abs(each - value))))
    return tuple(fixes)


@rule(
    "FA4-R001",
    passes=("forward",),
    why="the roles of warp groups differ by generation",
    upstream=("SM{} needs registers of type {}, got {}",),
)
def registers_of_another_arch(case: Case) -> Iterator[Violation]:
    """The register split names roles that the kernel of this arch does not have, or leaves one out.

    What: On sm_90 `mma_registers` and `producer_registers`; on sm_100, sm_103 and sm_110 `softmax_registers`,
    `correction_registers` and `other_registers`; all of them or none. Other arches have no split.

    Why: Each role is a group of warps with a limit of its own; a role without one would keep the count of the launch.

    Fix: sm_90 with two warp groups that compute: 240 and 24. sm_100: 192, 80 and 48.
    """
    form = _form(case.arch)
    given = [name for name in (*HOPPER, *BLACKWELL) if case.config.get(name) is not None]
    for name in given:
        if name not in form:
            roles = join_words(list(form), "and") or "none"
            message = f"{name} does not exist on {case.arch}, which has {roles}"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", None),))
    missing = [name for name in form if name not in given]
    if missing and len(missing) < len(form):
        for name in missing:
            message = f"{name} is missing, {join_words([each for each in given if each in form], 'and')} given"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", form[name]),))


@rule(
    "FA4-R002",
    passes=("forward",),
    why="the instruction that sets them counts in steps of 8",
    upstream=("Register counts must be multiples of 8 in [24, 256], got {}",),
)
def register_count_not_encodable(case: Case) -> Iterator[Violation]:
    """A count of registers is not one that the hardware can set.

    What: Each count is a multiple of 8 from 24 to 256.

    Why: `setmaxnreg` takes such numbers only.

    Fix: 20 -> 24; 100 -> 96 or 104.
    """
    for name in _form(case.arch):
        value = case.config.get(name)
        if isinstance(value, int) and value not in COUNTS:
            low = max((each for each in COUNTS if each < value), default=None)
            high = min((each for each in COUNTS if each > value), default=None)
            fixes = tuple(Fix(f"config.{name}", each) for each in (low, high) if each is not None)
            yield Violation(f"config.{name}", f"{name} {value} is not a multiple of 8 from 24 to 256", fixes)


@rule(
    "FA4-R003",
    passes=("forward",),
    arches=("sm_90",),
    why="the count at launch is the pivot, and all groups together have 65536 registers",
    upstream=(
        "SM90 MMA registers must be >= {} and producer <= {}, got {}",
        "Register split {} exceeds 512 per thread (uses {})",
    ),
)
def hopper_split_out_of_bounds(case: Case) -> Iterator[Violation]:
    """The register split does not fit the warp groups (sm_90).

    What: With `w` warp groups that compute (`tile_m` / 64), the count at launch is 256, 170 or 128 for w of 1, 2, 3.
    `producer_registers` is at most that, `mma_registers` at least that, and `w * mma_registers + producer_registers` at
    most 512.

    Why: Groups that compute may only raise their count, the one that loads may only lower it; what it gives up is what
    the others get. A sum above the register file would wait for ever.

    Fix: Two warp groups: 240 and 24 make 504; 248 and 24 make 520.
    """
    split, tile_m = _split(case), case.config.get("tile_m")
    if split is None or tile_m not in tiles.SM90_TILES_M:
        return
    groups = int(tile_m) // tiles.WARP_GROUP_ROWS
    launch = 65536 // (128 * (groups + 1))

    def turns(counts: Mapping[str, int]) -> bool:
        return counts["producer_registers"] <= launch <= counts["mma_registers"]

    def fits(counts: Mapping[str, int]) -> bool:
        return groups * counts["mma_registers"] + counts["producer_registers"] <= BUDGET

    yield from _faults(split, turns, fits, f"{launch} at launch must lie between producer and mma", groups)


@rule(
    "FA4-R004",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="512 threads are launched with 128 registers each, and groups share those 65536",
    upstream=(
        "SM100 softmax registers must be >= {} and other <= {}, got {}",
        "Register split {} exceeds 512 per thread (uses {})",
    ),
)
def blackwell_split_out_of_bounds(case: Case) -> Iterator[Violation]:
    """The register split does not fit the warp groups (sm_100 to sm_110).

    What: `softmax_registers` is at least 128, `other_registers` at most 128, and `q_stage * softmax_registers +
    correction_registers + (3 - q_stage) * other_registers` at most 512.

    Why: One softmax group per query stage raises its count, the groups that load, multiply and store lower theirs.

    Fix: Two stages: 192, 80 and 48 make 512; 200, 80 and 48 make 528.
    """
    split, stages = _split(case), Call(case).q_stage
    if split is None or stages not in (1, 2):
        return

    def turns(counts: Mapping[str, int]) -> bool:
        return counts["other_registers"] <= LAUNCH <= counts["softmax_registers"]

    def fits(counts: Mapping[str, int]) -> bool:
        others = counts["correction_registers"] + (3 - stages) * counts["other_registers"]
        return stages * counts["softmax_registers"] + others <= BUDGET

    yield from _faults(split, turns, fits, f"{LAUNCH} at launch must lie between other and softmax", stages)


def _faults(
    split: Mapping[str, int],
    turns: Callable[[Mapping[str, int]], bool],
    fits: Callable[[Mapping[str, int]], bool],
    pivot: str,
    raised: int,
) -> Iterator[Violation]:
    """``raised`` groups have the first count."""
    if turns(split) and fits(split):
        return
    counts = list(split.values())
    last = counts[-1] * (3 - raised if len(counts) > 2 else 1)
    used = raised * counts[0] + sum(counts[1:-1]) + last
    first, *_, final = split
    message = f"{', '.join(f'{name} {value}' for name, value in split.items())}: "
    message += f"{used} per thread, {BUDGET} are there" if not fits(split) else pivot
    field = f"config.{first if split[first] < LAUNCH or not fits(split) else final}"
    yield Violation(field, message, _nearest(split, lambda each: turns(each) and fits(each)), "leave the split out")
