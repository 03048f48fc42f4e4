"""Find families: folders of this package that hold a ``spec.py``, then ``attnctl.families`` entry points."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import attnctl_kernels
from attnctl_kernels.contract import Family

ENTRY_POINT_GROUP = "attnctl.families"


@cache
def family_names() -> tuple[str, ...]:
    """Names of all families that can be found, sorted. Imports none of them."""
    built_in = {
        info.name
        for info in pkgutil.iter_modules(attnctl_kernels.__path__)
        if info.ispkg and any((Path(root) / info.name / "spec.py").is_file() for root in attnctl_kernels.__path__)
    }
    return tuple(sorted(built_in | {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


@cache
def get_family(name: str) -> Family:
    """The family called ``name``; a built-in one is found without reading package metadata.

    Raises:
        KeyError: there is no such family.
    """
    if name.isidentifier() and any((Path(root) / name / "spec.py").is_file() for root in attnctl_kernels.__path__):
        family: Family = importlib.import_module(f"attnctl_kernels.{name}.spec").FAMILY
        return family
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            loaded: Family = point.load()
            return loaded
    raise KeyError(name)
