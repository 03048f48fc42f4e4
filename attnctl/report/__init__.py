"""Renderers of what `validate` found. A renderer is one file here with a function ``render(reports, out)``.

It is found by its name; files whose names start with an underscore are shared helpers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from attnctl.errors import UsageError
from attnctl.words import counted

if TYPE_CHECKING:
    from attnctl.rules.check import Report


class Renderer(Protocol):
    def render(self, reports: Sequence[Report], out: TextIO) -> None: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over all files."""

    files: int
    problems: int
    errors: int
    warnings: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def __str__(self) -> str:
        found = f"{counted(self.errors, 'error')}, {counted(self.warnings, 'warning')}"
        return f"{counted(self.files, 'file')}, {counted(self.problems, 'problem')}: {found}"


def summarize(reports: Sequence[Report]) -> Summary:
    return Summary(
        files=len(reports),
        problems=sum(report.problem_count for report in reports),
        errors=sum(report.errors for report in reports),
        warnings=sum(report.warnings for report in reports),
    )


def renderer_names() -> tuple[str, ...]:
    """The formats there are. Imports none of them."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


def get_renderer(name: str) -> Renderer:
    """The renderer called ``name``.

    Raises:
        UsageError: there is no such format.
    """
    if name not in renderer_names():
        raise UsageError(f"unknown format {name!r}", f"known: {', '.join(renderer_names())}")
    return cast("Renderer", importlib.import_module(f"{__name__}.{name}"))
