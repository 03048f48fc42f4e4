"""What the shell offers for values that no fixed list holds. Imports nothing that is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def families(incomplete: str) -> list[str]:
    from attnctl_kernels.families import family_names  # noqa: PLC0415 - only where a name is completed

    return [name for name in family_names() if name.startswith(incomplete)]


def opponents(incomplete: str) -> list[str]:
    """Of `bench --against`."""
    return [name for name in ("default", "incumbent") if name.startswith(incomplete)] + families(incomplete)


def rule_codes(incomplete: str) -> Iterator[tuple[str, str]]:
    """Each with the name of its fault."""
    from attnctl.rules.registry import all_rules  # noqa: PLC0415 - only where a code is completed

    for code, rule in sorted(all_rules().items()):
        if code.startswith(incomplete.upper()):
            yield code, rule.name


def arches(incomplete: str) -> list[str]:
    from attnctl_kernels.arch import ARCHES  # noqa: PLC0415 - as above

    return [name for name in ARCHES if name.startswith(incomplete)]


def masks(incomplete: str) -> list[str]:
    from attnctl.profile.initial import PATTERNS  # noqa: PLC0415 - as above

    return [name for name in PATTERNS if name.startswith(incomplete)]


def finding_formats(incomplete: str) -> list[str]:
    from attnctl.report import renderer_names  # noqa: PLC0415 - as above

    return [name for name in renderer_names() if name.startswith(incomplete)]


def export_forms(incomplete: str) -> list[str]:
    from attnctl.export import exporter_names  # noqa: PLC0415 - as above

    return [name for name in exporter_names() if name.startswith(incomplete)]


def device_names(incomplete: str) -> list[str]:
    """Devices that something is tuned for, below the working directory."""
    folders = {path.parent.name for path in Path().glob("**/tuned/*/*.yaml")}
    return sorted(name for name in folders if name.startswith(incomplete))
