"""FA4-F003, F004, F014: the keys of one query tile, split over several programs."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call, ceil_div
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

MOST_SPLITS = 256


@rule(
    "FA4-F003",
    passes=("forward",),
    why="the kernel that combines the parts knows 256 of them, and only the kernels of sm_100 to sm_110 write parts",
    upstream=(
        "num_splits must be in [1, 256], got {}",
        "SM{} does not support SplitKV",
        "SM120 forward only supports num_splits=1",
        "SplitKV not supported on SM 9.0",
        "SplitKV not supported on SM 8.0",
        "SplitKV not supported on SM 12.0 in this PR",
    ),
)
def number_of_splits_unsupported(case: Case) -> Iterator[Violation]:
    """The keys are split into more parts than the kernel can combine, or on an arch that cannot split.

    What: `num_splits` is 1 to 256 on sm_100, sm_103 and sm_110, or below 1 to let the kernel choose; on other arches
    it is 1.

    Why: Each part writes its own output, and a second kernel combines them. On sm_90 the call fails when the kernel is
    built; 0 is no way out there, because the kernel then chooses as on sm_100: one query tile over 8192 keys makes 64
    key tiles, which it would split.

    Fix: `num_splits: 1`, or leave it out. 300 -> 256 on sm_100.
    """
    given, call = case.config.get("num_splits"), Call(case)
    if not isinstance(given, int):
        return
    if call.on_blackwell:
        if given > MOST_SPLITS:
            message = f"num_splits {given} is above {MOST_SPLITS}"
            yield Violation("config.num_splits", message, (Fix("config.num_splits", MOST_SPLITS),))
    elif given > 1 or (given < 1 and case.arch != "sm_120" and call.auto_splits > 1):
        chosen = "" if given > 1 else f" lets the kernel choose {call.auto_splits}, and"
        message = f"num_splits {given}{chosen} is not possible on {case.arch}"
        yield Violation("config.num_splits", message.replace(", and is", ", which is"), (Fix("config.num_splits", 1),))


@rule(
    "FA4-F004",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="a part begins at a key tile, and all parts together must reach the last key",
    upstream=(
        "seqlen_k_per_split must be positive",
        "seqlen_k_per_split must be divisible by tile_n={}",
        "seqlen_k_per_split={} requires num_splits >= {}, got {}",
    ),
)
def keys_per_split_do_not_fit(case: Case) -> Iterator[Violation]:
    """The keys of one part are no whole number of key tiles, or the parts do not reach the end.

    What: `seqlen_k_per_split` is a positive multiple of `tile_n`; where `num_splits` is above 1 it is at least seqlen_k
    / seqlen_k_per_split, rounded up.

    Why: A part is a range of key tiles. 8192 keys in 4 parts of 1024 are 4096 keys: nothing reads the rest.

    Fix: 8192 keys, tile_n 128: 1000 -> 1024, with `num_splits: 8`.
    """
    size, call = case.config.get("seqlen_k_per_split"), Call(case)
    if not isinstance(size, int) or not call.tile_n:
        return
    field = "config.seqlen_k_per_split"
    if size < 1 or size % call.tile_n:
        near = nearest_multiples(size, call.tile_n) if size > 0 else (call.tile_n,)
        message = f"seqlen_k_per_split {size} is not a positive multiple of tile_n {call.tile_n}"
        yield Violation(field, message, tuple(Fix(field, each) for each in near))
    keys, splits = case.problem.seqlen_k, call.number("num_splits")
    if size > 0 and 1 < splits < ceil_div(keys, size):
        needed = ceil_div(keys, size)
        message = f"{splits} splits of {size} keys are {splits * size} of {keys}"
        fixes = [Fix("config.num_splits", needed)] if needed <= MOST_SPLITS else []
        whole = ceil_div(ceil_div(keys, splits), call.tile_n) * call.tile_n
        yield Violation("config.num_splits", message, (*fixes, Fix(field, whole)))


@rule(
    "FA4-F014",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="the parts are written in 32 bits, which doubles what O takes of shared memory",
    upstream=(
        "SplitKV does not support padded value head dimensions >= 192 except 256",
        "Diff-head SplitKV requires tile_n=64",
        "SplitKV is not supported for hdim_v >= 192 except 256",
    ),
)
def splits_do_not_suit_the_head_dims(case: Case) -> Iterator[Violation]:
    """The keys are split at head dimensions that leave no room for it.

    What: With `num_splits` above 1, head_dim_v rounded up to 16 is below 192, or is 256; and where head_dim and
    head_dim_v differ, `tile_n` is 64.

    Why: The interface does not raise for differing head dimensions. It changes the tile to 64 and the number of splits
    to its own, or takes one split where seqlen_k is short of 64 tiles: what runs is not what was asked for.

    Fix: head_dim 192, head_dim_v 128: `tile_n: 64`; or `num_splits: 1`.
    """
    call, splits = Call(case), Call(case).number("num_splits")
    dim, dim_v = call.dims
    if call.get("qv") or splits <= 1:
        return
    one = Fix("config.num_splits", 1)
    if tiles.padded(dim_v) >= 192 and dim_v != 256:
        yield Violation(
            "config.num_splits", f"num_splits {call.num_splits} does not work at head_dim_v {dim_v}", (one,)
        )
    elif dim != dim_v and call.tile_n and call.tile_n != 64:
        message = f"head_dim {dim} with head_dim_v {dim_v} is split at tile_n 64, not {call.tile_n}"
        yield Violation("config.num_splits", message, (Fix("config.tile_n", 64), one))
