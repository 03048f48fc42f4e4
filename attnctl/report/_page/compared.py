"""Two sweeps side by side: does what won in one win in the other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from attnctl.report._page.recall import Recalled
from attnctl.report._page.rows import Row
from attnctl_kernels.contract import Candidate

MOST_PAIRS = 6  # four sweeps


@dataclass(frozen=True, slots=True)
class Pair:
    """Configs that were timed in both, with their rows of both."""

    first: Recalled
    second: Recalled
    points: tuple[tuple[Row, Row], ...]
    differences: tuple[str, ...]

    @property
    def first_in_second(self) -> float | None:
        """Time of the first sweep's winner over the fastest of the second; None: it was not timed there."""
        return next((b.ratio for a, b in self.points if a.candidate == self.first.result.winner), None)

    @property
    def second_in_first(self) -> float | None:
        return next((a.ratio for a, b in self.points if b.candidate == self.second.result.winner), None)


def paired(sweeps: Sequence[tuple[Recalled, Sequence[Row]]]) -> list[Pair]:
    """Every two sweeps of one family and pass that have configs in common; none if they are many."""
    pairs = [_pair(first, second) for first, second in combinations(sweeps, 2) if _kind(first[0]) == _kind(second[0])]
    found = [each for each in pairs if each.points]
    return found if len(found) <= MOST_PAIRS else []


def _kind(sweep: Recalled) -> tuple[str, str]:
    task = sweep.header.task
    return task.family, task.pass_name


def _pair(first: tuple[Recalled, Sequence[Row]], second: tuple[Recalled, Sequence[Row]]) -> Pair:
    there: dict[Candidate | str, Row] = {row.candidate.key: row for row in second[1] if row.timed}
    points = tuple((row, there[key]) for row in first[1] if row.timed and (key := row.candidate.key) in there)
    return Pair(first[0], second[0], points, tuple(_differences(first[0], second[0])))


def _differences(first: Recalled, second: Recalled) -> list[str]:
    """What differs: each field of the problem, then device, versions, rules."""
    was, now = (_flat(each.header.task.problem.model_dump(mode="json")) for each in (first, second))
    found = [f"{name} {was.get(name)} and {now.get(name)}" for name in {**was, **now} if was.get(name) != now.get(name)]
    general = ("another task", "another space")
    return found + [each for each in first.header.differences(second.header) if each not in general]


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    nested = fields.pop("mask") or {}
    return {**fields, **{f"mask.{name}": value for name, value in nested.items()}}
