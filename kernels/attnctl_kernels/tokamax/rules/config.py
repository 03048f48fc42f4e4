"""TOK-001 to TOK-004, TOK-007, TOK-009 and TOK-010: what a Config may hold."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Severity, Violation, length_fixes, nearest_multiples, rule
from attnctl_kernels.tokamax.resources import SWIZZLE
from attnctl_kernels.tokamax.values import (
    BLACKWELL,
    HOPPER,
    TILES,
    has_k_range,
    implementation,
    is_causal,
    number,
    on_mosaic,
    up,
    value,
)

GRANULE = 64
CTA_ROWS = 128  # lanes of tensor memory
_OF_ARCH = {"persistent": HOPPER, "num_tma_splits": BLACKWELL, "collective": BLACKWELL}
_BLOCKS = ("block_q", "block_kv")
_VJP_BLOCKS = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
_COUNTS = ("num_stages", "split_k", "num_tma_splits")


def _granule(case: Case, names: tuple[str, ...]) -> Iterator[Violation]:
    for name in names:
        found = case.config.get(name)
        if isinstance(found, int) and (found <= 0 or found % GRANULE):
            near = nearest_multiples(found, GRANULE) if found > 0 else (GRANULE,)
            fixes = tuple(Fix(f"config.{name}", each) for each in near)
            yield Violation(f"config.{name}", f"{name} {found} is not a positive multiple of {GRANULE}", fixes)


def _positive(case: Case, names: tuple[str, ...]) -> Iterator[Violation]:
    for name in names:
        found = case.config.get(name)
        if isinstance(found, int) and found < 1:
            yield Violation(f"config.{name}", f"{name} {found} is below 1", (Fix(f"config.{name}", 1),))


@rule(
    "TOK-001",
    passes=("forward",),
    why="a warp group multiplies 64 rows, and 64 16-bit elements fill one swizzled row",
    upstream=(
        "tokamax … Input should be a multiple of 64",
        "tokamax … Input should be greater than 0",
        "tokamax … Unexpected keyword argument",
        "tokamax … Extra inputs are not permitted",
    ),
)
def forward_config_invalid(case: Case) -> Iterator[Violation]:
    """A parameter of the forward Config is out of range, or belongs to another arch.

    What: `block_q` and `block_kv` are positive multiples of 64; `num_stages`, `split_k` and `num_tma_splits` are at
    least 1. `persistent` exists on sm_90 alone, `num_tma_splits` and `collective` on sm_100 alone.

    Why: The Config checks its fields as it is made, and forbids those it does not have.

    Fix: 96 -> 64 or 128.
    """
    if implementation(case) != "mosaic":
        return
    yield from _granule(case, _BLOCKS)
    foreign = {name: arches for name, arches in _OF_ARCH.items() if on_mosaic(case) and case.arch not in arches}
    yield from _positive(case, tuple(name for name in _COUNTS if name not in foreign))
    for name in foreign:
        if name in case.config:
            message = f"there is no {name} on {case.arch}"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", value=None),))


@rule(
    "TOK-002",
    passes=("forward",),
    arches=BLACKWELL,
    why="tensor memory has 128 lanes, one per row",
    upstream=(
        (
            "For SM100 attention forward, block_q per CTA must be at least 128 to support TMEM slicing. Got block_q={} "
            "with collective={}."
        ),
    ),
)
def too_few_rows_per_cta(case: Case) -> Iterator[Violation]:
    """A CTA has other than 128 query rows (sm_100).

    What: `block_q` is 128, or 256 where `collective` shares it between two CTAs. A Config that states some parameters
    and leaves these out has `block_q: 64, collective: true`, which is invalid.

    Why: The scores of a row are one lane of tensor memory, and there are 128. Fewer are refused when the Config is
    made; more do not fit, which shows while the kernel is lowered.

    Fix: `collective: false` with `block_q: 128`, or `collective: true` with `block_q: 256`.
    """
    rows, collective = number(case, "block_q"), bool(value(case, "collective"))
    wanted = CTA_ROWS * (2 if collective else 1)
    if on_mosaic(case) and rows and rows % GRANULE == 0 and rows != wanted:
        given = f"block_q {rows} with collective {str(collective).lower()}"
        message = f"{given} gives a CTA {rows * CTA_ROWS // wanted} rows, not {CTA_ROWS}"
        fixes = [Fix("config.block_q", wanted)]
        if rows == CTA_ROWS * (1 if collective else 2):
            fixes.insert(0, Fix("config.collective", not collective))
        yield Violation("config.block_q", message, tuple(fixes))


@rule(
    "TOK-003",
    passes=("forward",),
    arches=BLACKWELL,
    why="upstream has seen invalid instructions now and then",
    upstream=(
        (
            "This config has been found to cause intermitted invalid instruction errors. Possible cause is barrier "
            "state at the end of the kernel."
        ),
    ),
)
def narrow_keys_without_a_pair(case: Case) -> Iterator[Violation]:
    """Key blocks of 64 in a kernel that is not collective (sm_100).

    What: Without `collective`, `block_kv` is at least 128.

    Why: Upstream refuses the combination since it failed on some runs and not on others.

    Fix: `block_kv: 128`, or `collective: true` with `block_q: 256`.
    """
    keys = number(case, "block_kv")
    if on_mosaic(case) and keys and keys < CTA_ROWS and not value(case, "collective"):
        fixes = (Fix("config.block_kv", CTA_ROWS), Fix("config.collective", value=True))
        yield Violation("config.block_kv", f"block_kv {keys} needs collective", fixes)


@rule(
    "TOK-004",
    passes=("forward",),
    arches=BLACKWELL,
    why="a copy moves whole swizzled rows, at least 16 elements of 16 bits",
)
def head_dim_does_not_split(case: Case) -> Iterator[Violation]:
    """The head dimension does not split into whole copies (sm_100).

    What: head_dim / num_tma_splits, and head_dim_v / num_tma_splits / (2 if collective), are multiples of 16. Both head
    dimensions are first padded to 16, and head_dim_v to 32 for a collective kernel.

    Why: Each load of K and V is cut into `num_tma_splits` boxes along the head dimension, and a collective kernel gives
    each CTA half of V. Upstream's sweep leaves such configs out; given by hand they fail while the kernel is lowered.

    Fix: head_dim 80 with 2 splits gives 40 elements -> 1 split.
    """
    yield from _splits(case, SWIZZLE)


@rule(
    "TOK-014",
    severity=Severity.WARNING,
    passes=("forward",),
    arches=BLACKWELL,
    why="upstream neither sweeps nor tests such copies",
)
def copy_narrower_than_a_row(case: Case) -> Iterator[Violation]:
    """A copy is narrower than a swizzled row of 128 bytes (sm_100).

    What: With `num_tma_splits` above 1, or `collective`, the parts of TOK-004 are multiples of 64.

    Why: Narrower boxes take a smaller swizzle and more copies. Upstream's sweep passes over them.

    Fix: head_dim 128: at most 2 splits, or 1 for a collective kernel.
    """
    if not any(True for _ in _splits(case, SWIZZLE)):
        yield from _splits(case, GRANULE)


def _splits(case: Case, unit: int) -> Iterator[Violation]:
    splits, pair = number(case, "num_tma_splits"), 2 if value(case, "collective") else 1
    if not on_mosaic(case) or not splits or splits * pair == 1 or case.given.isdisjoint(TILES):
        return  # without any Config the heuristics choose, and know what they do
    dims = {
        "head_dim": up(case.problem.head_dim, SWIZZLE),
        "head_dim_v": up(case.problem.head_dim_v, SWIZZLE * pair),
    }

    def wrong(count: int, half: int) -> list[str]:
        parts = {"head_dim": count, "head_dim_v": count * half}
        return [name for name, dim in dims.items() if dim % (parts[name] * unit)]

    for name in wrong(splits, pair)[:1]:
        parts = splits * (pair if name == "head_dim_v" else 1)
        fitting = next((each for each in range(splits - 1, 0, -1) if not wrong(each, pair)), None)
        fixes = [Fix("config.num_tma_splits", fitting)] if fitting else []
        if pair == 2 and not wrong(splits, 1):
            fixes.append(Fix("config.collective", value=False))
        message = (
            f"{name} {dims[name]} in {parts} parts gives {dims[name] / parts:g} elements, not a multiple of {unit}"
        )
        yield Violation("config.num_tma_splits", message, tuple(fixes), "" if fixes else "use one split and no pair")


@rule(
    "TOK-007",
    passes=("forward",),
    why="each part would need the range of keys of its own",
    upstream=("split_k > 1 only supported without causality and k_start/k_end.",),
)
def keys_cannot_be_split(case: Case) -> Iterator[Violation]:
    """`split_k` beside a causal mask, a range of keys, or a length that needs padding.

    What: With `split_k` above 1 there is no causal mask and no k_start or k_end, and split_k * block_kv divides
    seqlen_k.

    Why: The parts are computed as separate batches and put together afterwards. Causality and ranges count keys from
    the start of the sequence; padding brings in a range by itself.

    Fix: 4096 keys, `split_k: 2`, `block_kv: 128` work. 4000 keys -> `split_k: 1`, or pad to 4096 (2.4 % more tokens).
    """
    split, keys, length = number(case, "split_k"), number(case, "block_kv"), case.problem.seqlen_k
    if split < 2 or implementation(case) != "mosaic":
        return
    one = Fix("config.split_k", 1)
    if is_causal(case) or has_k_range(case):
        what = "a causal mask" if is_causal(case) else "a range of keys per query"
        yield Violation("config.split_k", f"split_k {split} stands beside {what}", (one,))
    elif keys and length % (split * keys):
        message = f"seqlen_k {length} is not a multiple of split_k {split} * block_kv {keys} = {split * keys}"
        yield Violation("config.split_k", message, (one, *length_fixes("problem.seqlen_k", length, split * keys)))


@rule(
    "TOK-009",
    passes=("backward",),
    why="the backward kernels multiply 64 rows at a time too, and have one set of outputs",
    upstream=(
        "tokamax … Unexpected config: {}",
        "SM90 config required for sm90 GPUs.",
        "`normalize_output=False` not supported.",
        "`return_residuals` not supported.",
    ),
)
def backward_config_invalid(case: Case) -> Iterator[Violation]:
    """A parameter of the backward Config is out of range, or belongs to another arch.

    What: All four blocks are positive multiples of 64; `num_stages`, `compute_wgs` and `residual_stages` are at least
    1; `residual_stages` exists on sm_100 alone. The output is normalised, and residuals are not returned.

    Why: The Config checks `block_q_dkv` and `block_kv_dkv` for 64, and the other two for being positive only: 32 fails
    while the kernel is lowered.

    Fix: 32 -> 64.
    """
    if implementation(case) != "mosaic":
        return
    yield from _granule(case, _VJP_BLOCKS)
    counts = ("num_stages", "compute_wgs")
    yield from _positive(case, counts if case.arch in HOPPER else (*counts, "residual_stages"))
    if "residual_stages" in case.given and case.arch in HOPPER:
        name = "config.residual_stages"
        yield Violation(name, "residual_stages makes it a Config for sm_100", (Fix(name, value=None),))
    if case.config.get("normalize_output") is False:
        name = "config.normalize_output"
        yield Violation(
            name, "gradients of an output that is not normalised are not supported", (Fix(name, value=True),)
        )
    if case.config.get("return_residuals"):
        name = "config.return_residuals"
        yield Violation(name, "the backward pass returns no residuals", (Fix(name, value=False),))


@rule(
    "TOK-010",
    passes=("backward",),
    arches=BLACKWELL,
    why="each length is padded for one of the two kernels, and the other counts whole blocks of its own",
)
def backward_blocks_leave_a_tail(case: Case) -> Iterator[Violation]:
    """One backward kernel does not reach the end of the sequence (sm_100).

    What: Keys, padded to `block_kv_dkv`, hold whole blocks of `block_kv_dq` up to the last real key; queries, padded
    to `block_q_dq`, hold whole blocks of `block_q_dkv`. It is enough that `block_kv_dkv` is a multiple of
    `block_kv_dq` and `block_q_dq` one of `block_q_dkv`.

    Why: The dQ kernel walks padded keys // block_kv_dq blocks, rounded down, and the dKV kernel padded queries //
    block_q_dkv. 1088 keys with blocks of 64 for dKV and 128 for dQ: 8 blocks, and the last 64 keys give dQ nothing. No
    message says so.

    Fix: `block_kv_dkv: 128` with `block_kv_dq: 128` or 64.
    """
    problem = case.problem
    if not on_mosaic(case):
        return
    sides = (
        ("seqlen_k", problem.seqlen_k, "block_kv_dkv", "block_kv_dq"),
        ("seqlen_q", problem.seqlen_q, "block_q_dq", "block_q_dkv"),
    )
    for name, length, padding, walked in sides:
        unit, step = number(case, padding), number(case, walked)
        if not unit or not step:
            continue
        reached = up(length, unit) // step * step
        if reached < length:
            fitting = next(each for each in range(min(step, unit), 0, -1) if unit % each == 0 and step >= each)
            message = f"{walked} {step} reaches {reached} of {length} ({name} is padded to {padding} {unit})"
            fixes = (Fix(f"config.{walked}", fitting), *length_fixes(f"problem.{name}", length, step))
            yield Violation(f"config.{walked}", message, fixes)
