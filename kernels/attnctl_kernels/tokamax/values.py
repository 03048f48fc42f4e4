"""The numbers of a case, as tokamax reads its Config."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl_kernels.contract import Case, Scalar

HOPPER = ("sm_90",)
BLACKWELL = ("sm_100", "sm_103")
MOSAIC = HOPPER + BLACKWELL
TILES = ("block_q", "block_kv", "num_stages", "split_k", "persistent", "num_tma_splits", "collective")

# What a Config has where the program leaves a field out. Without any Config the heuristics choose all of them.
_FIELDS: Mapping[str, Scalar] = {
    "block_q": 64,
    "block_kv": 64,
    "num_stages": 2,
    "split_k": 1,
    "persistent": False,
    "num_tma_splits": 1,
    "collective": True,
}
_RANGES = ("sliding_window", "document", "prefix_lm")  # patterns that k_start and k_end per query describe


def is_forward(case: Case) -> bool:
    return case.pass_name == "forward"  # noqa: S105 - not a password


def value(case: Case, name: str) -> Scalar | None:
    """A parameter; one that is left out beside others has the default of upstream's class, not the heuristics'."""
    if is_forward(case) and name in _FIELDS and name not in case.given and not case.given.isdisjoint(TILES):
        return _FIELDS[name]
    return case.config.get(name)


def number(case: Case, name: str) -> int:
    """The parameter, or 0 where it makes no sense: another rule says so."""
    found = value(case, name)
    return found if isinstance(found, int) and found > 0 else 0


def implementation(case: Case) -> str:
    return str(case.config.get("implementation", "mosaic"))


def on_mosaic(case: Case) -> bool:
    return implementation(case) == "mosaic" and case.arch in MOSAIC


def is_causal(case: Case) -> bool:
    return case.problem.mask.pattern == "causal"


def has_k_range(case: Case) -> bool:
    """Whether the mask reaches the kernel as a first and a last key per query."""
    return bool(case.config.get("k_range", case.problem.mask.pattern in _RANGES))


def mask_dims(case: Case) -> int:
    """Sequence dimensions of the mask array: none where flags or ranges say it all."""
    found = case.config.get("mask_dims")
    if isinstance(found, int):
        return found
    return 2 if case.problem.mask.pattern in ("history_candidate", "blocks") else 0


def bias_dims(case: Case) -> int:
    found = case.config.get("bias_dims")
    return found if isinstance(found, int) else 0


def up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
