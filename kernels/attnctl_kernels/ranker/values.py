"""What rules of both passes say of a parameter's value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.rule import Fix, Violation


def not_one_of(case: Case, name: str, allowed: Sequence[int]) -> Iterator[Violation]:
    """A parameter that is none of ``allowed``, which are in order; the nearest mend it."""
    value = case.config.get(name)
    if isinstance(value, int) and value not in allowed:
        below = [each for each in allowed if each < value][-1:]
        above = [each for each in allowed if each > value][:1]
        fixes = tuple(Fix(f"config.{name}", each) for each in (*below, *above))
        known = join_words(allowed) if len(allowed) < 4 else f"{allowed[0]}, {allowed[1]}, ... {allowed[-1]}"
        yield Violation(f"config.{name}", f"{name} {value} is not {known}", fixes)
