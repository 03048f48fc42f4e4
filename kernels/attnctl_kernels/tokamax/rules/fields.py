"""Checks that both Configs share."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation, nearest_multiples

GRANULE = 64


def granule(case: Case, names: tuple[str, ...]) -> Iterator[Violation]:
    for name in names:
        found = case.config.get(name)
        if isinstance(found, int) and (found <= 0 or found % GRANULE):
            near = nearest_multiples(found, GRANULE) if found > 0 else (GRANULE,)
            fixes = tuple(Fix(f"config.{name}", each) for each in near)
            yield Violation(f"config.{name}", f"{name} {found} is not a positive multiple of {GRANULE}", fixes)


def positive(case: Case, names: tuple[str, ...]) -> Iterator[Violation]:
    for name in names:
        found = case.config.get(name)
        if isinstance(found, int) and found < 1:
            yield Violation(f"config.{name}", f"{name} {found} is below 1", (Fix(f"config.{name}", 1),))
