"""TOK-001 to TOK-004, TOK-007 and TOK-014: what a forward Config may hold."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Severity, Violation, length_fixes, multiples_below, rule
from attnctl_kernels.tokamax.resources import SWIZZLE
from attnctl_kernels.tokamax.rules.fields import GRANULE, granule, positive
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

CTA_ROWS = 128  # lanes of tensor memory
_OF_ARCH = {"persistent": HOPPER, "num_tma_splits": BLACKWELL, "collective": BLACKWELL}
_BLOCKS = ("block_q", "block_kv")
_COUNTS = ("num_stages", "split_k", "num_tma_splits")


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
    yield from granule(case, _BLOCKS)
    foreign = {name: arches for name, arches in _OF_ARCH.items() if on_mosaic(case) and case.arch not in arches}
    yield from positive(case, tuple(name for name in _COUNTS if name not in foreign))
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
        fitting = next((each for each in multiples_below(splits) if not wrong(each, pair)), None)
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
