"""A violation's fixes as one sentence."""

from __future__ import annotations

from collections.abc import Callable

from attnctl.profile.scalars import spell
from attnctl_kernels.contract import join_words
from attnctl_kernels.rule import Fix, Violation


def fix_sentence(violation: Violation, written_field: Callable[[str], str]) -> str:
    """``seq_len 768 (23 % fewer tokens) or 1024; block_q_dq 64``: by field, cheapest first."""
    groups: dict[str, list[str]] = {}
    for fix in violation.fixes:
        name = written_field(fix.field)
        groups.setdefault(_short(name), []).append(_value(fix))
    parts = [
        f"{name} {join_words(values)}" if values != ["remove"] else f"remove {name}" for name, values in groups.items()
    ]
    if violation.advice:
        parts.append(violation.advice)
    return "; or ".join(parts)


def _short(name: str) -> str:
    """``problem.seq_len[1]`` -> ``seq_len``: the place is said already."""
    last = name.rpartition(".")[2]
    return last.partition("[")[0] if name.startswith("problem.") else last


def _value(fix: Fix) -> str:
    text = "remove" if fix.value is None else spell(fix.value)
    return f"{text} ({fix.price})" if fix.price else text
