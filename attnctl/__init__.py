"""Validate, tune and benchmark block-sparse attention kernels.

A program asks for a tuned config with :func:`load_config`; everything else is the command line's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from attnctl_kernels.contract import PassName

__all__ = ["load_config"]


def load_config(
    profile: str | os.PathLike[str],
    *,
    seqlen_q: int | None = None,
    seqlen_k: int | None = None,
    device_name: str | None = None,
    pass_name: PassName = "forward",  # noqa: S107 - not a password
) -> dict[str, Any]:
    """The tuned config of a profile's problem on this device; without one, the profile's own, with a warning.

    Args:
        profile: the hand-written profile.
        seqlen_q: which problem, where the profile lists several lengths.
        seqlen_k: likewise.
        device_name: as ``torch.cuda.get_device_name()`` gives it; found out if not given.
        pass_name: "forward" or "backward".

    Returns:
        The kernel's parameters by the kernel's own names, and ``sparse_block`` where it has one.

    Raises:
        attnctl.errors.AttnctlError: the profile has errors, or has no such problem.
    """
    from attnctl.profile.runtime import load_config as load  # noqa: PLC0415 - importing attnctl costs nothing

    return load(profile, seqlen_q=seqlen_q, seqlen_k=seqlen_k, device_name=device_name, pass_name=pass_name)
