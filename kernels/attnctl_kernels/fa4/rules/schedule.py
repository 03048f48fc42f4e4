"""FA4-F016 to F020: ways of ordering the work that only some problems on sm_100, sm_103 and sm_110 allow."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import ROWS, Call
from attnctl_kernels.rule import Fix, Violation, rule

PING_PONG_DIMS = ((64, 64), (128, 128), (256, 256))


def _off(name: str, message: str, *others: Fix) -> Violation:
    return Violation(f"config.{name}", message, (Fix(f"config.{name}", False), *others))


@rule(
    "FA4-F016",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="the hardware scheduler hands out tiles that the kernel cannot map in these cases",
    upstream=("CLC is not supported for this forward problem",),
)
def clc_not_possible(case: Case) -> Iterator[Violation]:
    """Cluster launch control is asked for where it cannot run (sm_100 to sm_110).

    What: With `use_clc`, `page_size` is left out or `tile_n`; there is no `tile_count_semaphore` for ragged queries;
    and head_dim 256 does not run with `use_2cta`.

    Why: The first two take another loader and another scheduler, and the request is dropped without a word. Pairs of
    CTAs at head_dim 256 are mapped wrongly: wrong output, traps or hangs. `FA_CLC=1` asks for it too, and the interface
    leaves it off for dense masks without causality, where it would only cost time.

    Fix: `use_clc: false`.
    """
    call = Call(case)
    if not call.get("use_clc") or call.can_clc:
        return
    if not call.pages_are_tiles:
        yield _off("use_clc", f"use_clc needs page_size {call.tile_n}, not {call.page_size}")
    if call.semaphore_schedules:
        yield _off("use_clc", "use_clc does not go with tile_count_semaphore for ragged queries")
    if call.is_256 and call.pairs:
        yield _off("use_clc", "use_clc does not go with pairs of CTAs at head_dim 256", Fix("config.use_2cta", False))


@rule(
    "FA4-F017",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="programs that stay take every n-th tile, which balances only if all tiles cost the same",
    upstream=("Static persistent scheduling is not supported for this forward problem",),
)
def static_persistence_not_possible(case: Case) -> Iterator[Violation]:
    """Static persistent scheduling is asked for where tiles differ in cost (sm_100 to sm_110).

    What: With `static_persistent` there is one split, no `use_clc` and no `tile_count_semaphore` for ragged queries;
    and the mask is neither causal nor a window with queries of one length, or the packed rows of a sequence fit one
    program (`q_stage * 128`) and causal work does not run in pairs of CTAs.

    Why: A causal tile near the end reads all keys, the first reads one tile of them.

    Fix: `static_persistent: false` for causal masks of 4096 queries.
    """
    call = Call(case)
    if call.get("static_persistent") and not call.can_stay:
        yield _off("static_persistent", f"static_persistent is not possible: {_why_not_stay(call)}")


def _why_not_stay(call: Call) -> str:
    if call.num_splits > 1:
        return f"num_splits is {call.num_splits}"
    if call.get("use_clc"):
        return "use_clc is on"
    if call.semaphore_schedules:
        return "tile_count_semaphore orders ragged queries"
    kind = "ragged" if call.varlen_q else "causal or local"
    rows = call.q_stage * call.tile_m
    if call.packed_rows > rows:
        return f"the call is {kind}, and its {call.packed_rows} packed rows are more than one program's {rows}"
    return f"the call is {kind} and runs in pairs of CTAs"


@rule(
    "FA4-F018",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="a box of the tensor memory accelerator cannot end inside a sequence or a group of heads",
    upstream=("TMA O is not supported for this GQA, SplitKV, or varlen layout",),
)
def tma_store_not_possible(case: Case) -> Iterator[Violation]:
    """The output is to be written by the tensor memory accelerator where its boxes do not fit (sm_100 to sm_110).

    What: With `use_tma_o` the queries are not ragged; the keys are not split at head_dim_v 256; and where the heads of
    a group are packed, the group divides 128 and the keys are not split.

    Why: A tile of 128 packed rows at 6 heads per group ends two heads into a query.

    Fix: Groups of 6: `use_tma_o: false`, or `pack_gqa: false`.
    """
    call = Call(case)
    if not call.get("use_tma_o") or call.can_tma_o:
        return
    if call.varlen_q:
        yield _off("use_tma_o", f"use_tma_o does not go with {' and '.join(call.varlen)}")
    if call.num_splits > 1 and call.dims[1] == 256:
        yield _off("use_tma_o", f"use_tma_o does not go with num_splits {call.num_splits} at head_dim_v 256")
    if call.pack_gqa and (call.tile_m % call.group or call.num_splits > 1):
        rest = f"num_splits {call.num_splits}" if call.num_splits > 1 else f"a group that does not divide {call.tile_m}"
        message = f"use_tma_o does not go with {call.group} packed heads per group and {rest}"
        others = () if call.varlen_q or (call.num_splits > 1 and call.dims[1] == 256) else (_UNPACK,)
        yield _off("use_tma_o", message, *others)


_UNPACK = Fix("config.pack_gqa", False)


@rule(
    "FA4-F019",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="the second tile of scores takes the room of the second query tile, and knows the plain softmax only",
    upstream=(
        "S ping-pong is not supported for this forward problem",
        "Block sparsity + S ping-pong not supported on SM100",
        "S ping-pong requires q_stage == 1 (one Q tile per CTA)",
    ),
)
def ping_pong_not_possible(case: Case) -> Iterator[Violation]:
    """Two tiles of scores are to alternate where the kernel has no room or no code for it (sm_100 to sm_110).

    What: With `use_s_ping_pong`, `q_stage` is 1, head_dim equals head_dim_v and is 64, 128 or 256, the tile is 128 x
    128, pages are of 128 keys, and there is no score_mod, mask_mod, block list or learnable sink.

    Why: With one query tile half of tensor memory is free for a second tile of scores: 128 columns of S twice beside
    128 of O. The path has no place for anything that changes scores.

    Fix: `use_s_ping_pong: false`.
    """
    call = Call(case)
    if call.get("use_s_ping_pong") and not call.can_ping_pong:
        faults = {
            f"q_stage is {call.q_stage}": call.q_stage != 1,
            f"head dimensions are {call.dims[0]} and {call.dims[1]}": call.dims
            not in ((64, 64), (128, 128), (256, 256)),
            f"the tile is {call.tile_m} x {call.tile_n}": (call.tile_m, call.tile_n) != (128, 128),
            f"page_size is {call.page_size}": not call.pages_are_tiles,
            "there is a score_mod": bool(call.get("score_mod")),
            "there is a mask_mod": call.masked,
            "there is a learnable sink": bool(call.get("learnable_sink")),
        }
        reasons = ", ".join(reason for reason, holds in faults.items() if holds)
        yield _off("use_s_ping_pong", f"use_s_ping_pong is not possible: {reasons}")


@rule(
    "FA4-F020",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="the two CTAs of a pair work on neighbouring query tiles of one sequence, and each holds half of the keys",
    upstream=("2CTA instructions are not supported for this forward problem",),
)
def pairs_not_possible(case: Case) -> Iterator[Violation]:
    """Pairs of CTAs are asked for where there is nothing to share (sm_100 to sm_110).

    What: With `use_2cta` there is one split, no seqused_q and no block list, `page_size` is left out or 128, the packed
    rows are more than one program's (`q_stage * 128`), packed groups divide 128, and queries are not ragged. Head
    dimensions are 128 or 192 with head_dim_v 128, neither causal nor local; or both 256, where ragged queries, causal
    masks and, while all pairs fit on the device at once, a single tile are allowed.

    Why: The kernel was written for these shapes. Left to itself the interface turns pairs off elsewhere, on CUDA 12,
    and with FA_DISABLE_2CTA=1.

    Fix: Leave `use_2cta` out. Groups of 6: `pack_gqa: false`.
    """
    call = Call(case)
    if not call.get("use_2cta"):
        return
    if call.disables_pairs:
        fix = Fix("config.FA_DISABLE_2CTA", 0)
        yield _off("use_2cta", "use_2cta is asked for, and FA_DISABLE_2CTA turns it off", fix)
    if not call.can_pair:
        causal, local = call.causal_and_local
        rows = call.q_stage * ROWS
        shape = f"{call.dims[0]} and {call.dims[1]}" + (" causal" if causal else " local" if local else "")
        faults = {
            f"num_splits is {call.num_splits}": call.num_splits != 1,
            "there are block lists": call.sparse,
            f"queries are ragged ({', '.join(call.varlen)})": call.varlen_q,
            f"page_size is {call.page_size}": call.page_size not in (None, ROWS),
            f"{call.packed_rows} packed rows fit one program of {rows}": call.packed_rows <= rows,
            f"packed groups of {call.group} do not divide 128": call.pack_gqa and bool(ROWS % call.group),
        }
        reasons = [reason for reason, holds in faults.items() if holds] or [f"head dimensions are {shape}"]
        yield _off("use_2cta", f"use_2cta is not possible: {', '.join(reasons)}")
