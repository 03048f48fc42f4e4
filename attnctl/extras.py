"""The optional dependency groups, and what each lacks here. Reads package metadata; imports no package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[([^]]*)\])?[^;]*(?:;.*\bextra\s*==\s*['\"]([^'\"]+)['\"])?"
)


def install_command(extra: str) -> str:
    return f"pip install 'attnctl[{extra}]'"


def missing(extra: str, distribution: str = "attnctl") -> tuple[str, ...]:
    """Packages of ``extra`` that are not installed, sorted; those of extras that it includes count too.

    Nothing where ``distribution`` runs from a source tree: it has no metadata that would name them.
    """
    return tuple(sorted({name for name in _packages(extra, distribution) if not _installed(name)}))


def is_complete(extra: str, distribution: str = "attnctl") -> bool:
    """Whether everything of ``extra`` is installed, so that a module that is missing belongs to something else."""
    return bool(list(_packages(extra, distribution))) and not missing(extra, distribution)


def _packages(extra: str, distribution: str) -> Iterator[str]:
    if not _installed(distribution):
        return
    for requirement in metadata.requires(distribution) or ():
        match = _REQUIREMENT.match(requirement)
        if match is None or match[3] != extra:
            continue
        if match[1] == distribution:
            for included in (match[2] or "").split(","):
                yield from _packages(included.strip(), distribution)
        else:
            yield match[1]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
