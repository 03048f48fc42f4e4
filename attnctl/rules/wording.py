"""The fixes of a finding as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.profile.scalars import spell
from attnctl_kernels.contract import join_words
from attnctl_kernels.rule import Fix


def fix_sentence(fixes: Sequence[Fix], advice: str = "") -> str:
    """``seq_len 768 (23 % fewer tokens) or 1024; or block_q_dq 64``: by field, cheapest first, advice last."""
    groups: dict[str, list[str]] = {}
    removed: dict[str, None] = {}
    for fix in fixes:
        name = _short(fix.field)
        if fix.value is None:
            removed[name] = None
        else:
            groups.setdefault(name, []).append(f"{spell(fix.value)} ({fix.price})" if fix.price else spell(fix.value))
    parts = [f"{name} {join_words(values)}" for name, values in groups.items()]
    parts += [f"remove {name}" for name in removed]
    return "; or ".join([*parts, advice] if advice else parts)


def _short(field: str) -> str:
    """The place is said already: ``problem.seq_len[1]`` -> ``seq_len``, ``config.forward.tile_m`` -> ``tile_m``."""
    section, _, name = field.partition(".")
    if section == "problem":
        return name.partition("[")[0]
    return name.rpartition(".")[2] if section in ("config", "mask", "layout") else field
