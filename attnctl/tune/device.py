"""The device that a profile's kernels are measured on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnctl.errors import Unavailable
from attnctl.gpu.protocol import Environment
from attnctl.profile.model import Profile
from attnctl_kernels.families import get_family

CPU = "cpu"
FIRST_GPU = "cuda:0"
ALL = "all"


def device_of(profile: Profile, wanted: str | None) -> str:
    """What the user names, or else what the profile is for."""
    return wanted or (FIRST_GPU if get_family(profile.family).on_gpu(profile.arch) else CPU)


def devices_of(profile: Profile, wanted: str | None) -> tuple[str, ...]:
    """Several, as ``cuda:0,cuda:1``; of ``all`` the first, which knows how many there are."""
    if wanted == ALL:
        first = device_of(profile, None)
        return (first if ":" in first else f"{first}:0",)
    return tuple(device_of(profile, wanted).split(","))


def check_device(path: Path, profile: Profile, environment: Environment, say: Callable[[str], None]) -> None:
    """Warn of others who compute on the device.

    Raises:
        Unavailable: it is not of the architecture that the profile at ``path`` is for.
    """
    wanted, here = profile.arch, environment.arch
    if wanted and here and wanted != here:
        raise Unavailable(
            f"{path}: is for {wanted}, and {environment.device} ({environment.device_name}) is {here}",
            f"run it on {wanted}, or write a profile for {here}",
        )
    if others := environment.other_processes:
        say(f"other processes compute on {environment.device}: {', '.join(map(str, others))}; times may be noisy")
