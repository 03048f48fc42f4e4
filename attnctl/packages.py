"""Versions of the packages that kernels come from, read from their metadata: nothing is imported."""

from __future__ import annotations

from importlib import metadata

KERNEL_PACKAGES = ("torch", "triton", "flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels", "jax", "tokamax", "ray")


def version_of(name: str) -> str | None:
    """None where it is not installed, or where its metadata is damaged."""
    try:
        found: str | None = metadata.version(name)
    except (metadata.PackageNotFoundError, KeyError, ValueError, OSError):
        return None
    return found


def kernel_versions() -> tuple[dict[str, str], tuple[str, ...]]:
    """Versions by name, and what is not there."""
    found = {name: version_of(name) for name in KERNEL_PACKAGES}
    here = {name: version for name, version in found.items() if version}
    return here, tuple(name for name in KERNEL_PACKAGES if name not in here)
