"""This machine as far as it can be known without a framework: its device, and the versions a config depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Self

from attnctl.gpu.names import cpu_name, device_slug, driver_version, gpu_names
from attnctl.profile.tuned import Entry
from attnctl_kernels.contract import Family, join_words


@dataclass(frozen=True, slots=True)
class Here:
    """The device that a config is asked for. ``local``: it is in this machine, so its versions are known."""

    family: Family
    device_name: str | None
    how: str  # the device was found, or why it was not
    local: bool

    @classmethod
    def of(cls, family: Family, arch: str | None, asked: str | None) -> Self:
        """``asked`` is any spelling of a device's name; None: the device here that ``family`` runs on for ``arch``."""
        present = gpu_names() if family.on_gpu(arch) else (cpu_name(),)
        if asked is not None:
            slug = device_slug(asked)
            local = slug in present
            how = "as asked" if local else "as asked; it is not in this machine, so versions are not compared"
            return cls(family, slug, how, local)
        if len(present) == 1:
            return cls(family, present[0], "found in this machine", local=True)
        several = f"several kinds are here ({join_words(present, 'and')})" if present else "no GPU is here"
        return cls(family, None, f"{several}: give device_name", local=False)

    def versions(self, entries: Iterable[Entry]) -> dict[str, str]:
        """What is installed of what ``entries`` were tuned with; nothing where another machine is asked about."""
        if not self.local:
            return {}
        named = {name for entry in entries for name in entry.versions}
        known = {name: version for name in named if (version := _installed(name)) is not None}
        return {**known, **_sources(self.family)}


@cache
def _installed(name: str) -> str | None:
    if name == "driver":
        return driver_version()
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


@cache
def _sources(family: Family) -> dict[str, str]:
    return family.sources()
