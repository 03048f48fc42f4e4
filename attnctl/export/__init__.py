"""Exporters of configs. An exporter is one file here with ``FAMILIES``, ``SUFFIX`` and a function ``render(export)``.

It is found by its name; files whose names start with an underscore are shared helpers. What it renders is complete:
code that can be pasted and called, or a file that another program reads.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from attnctl.errors import UsageError
from attnctl.profile.decision import Decision
from attnctl_kernels.contract import PassName, join_words


@dataclass(frozen=True, slots=True)
class Export:
    """The configs of one profile on one device: one decision per problem and pass."""

    profile: Path
    decisions: Sequence[Decision]

    def of_pass(self, pass_name: PassName) -> list[Decision]:
        return [each for each in self.decisions if each.task.pass_name == pass_name]

    @property
    def first(self) -> Decision:
        return self.decisions[0]


class Exporter(Protocol):
    FAMILIES: tuple[str, ...]  # that it can render; empty: any
    SUFFIX: str  # of the file's name

    def render(self, export: Export) -> str:
        """The whole file.

        Raises:
            UsageError: these configs cannot be said in this form.
        """


def exporter_names() -> tuple[str, ...]:
    """The forms there are. Imports none of them."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


def get_exporter(name: str, family: str) -> Exporter:
    """The exporter called ``name``.

    Raises:
        UsageError: there is none, or it is not for ``family``.
    """
    if name not in exporter_names():
        raise UsageError(f"--to {name}: no such form", f"known: {', '.join(exporter_names())}")
    exporter = cast("Exporter", importlib.import_module(f"{__name__}.{name}"))
    if exporter.FAMILIES and family not in exporter.FAMILIES:
        fitting = [each for each in exporter_names() if family in _families(each) or not _families(each)]
        raise UsageError(
            f"--to {name}: is for {join_words(exporter.FAMILIES)}, and the profile's family is {family}",
            f"for {family}: {join_words(fitting)}",
        )
    return exporter


def _families(name: str) -> tuple[str, ...]:
    return cast("Exporter", importlib.import_module(f"{__name__}.{name}")).FAMILIES
