"""Validate, tune and benchmark block-sparse attention kernels.

A program asks for a tuned config with :func:`load_config`; everything else is the command line's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnctl_kernels.contract import PassName

__all__ = ["load_config"]


def load_config(
    profile: str | os.PathLike[str],
    *,
    seqlen_q: int | None = None,
    seqlen_k: int | None = None,
    device_name: str | None = None,
    pass_name: PassName = "forward",  # noqa: S107 - not a password
    tuned_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """The config for one call: tuned for it, or for the nearest lengths, or the profile's own, or the kernel's default.

    Anything but the first comes with one warning per process (``NotTuned``). The rules allow whatever is returned. A
    process asks the files once per call, and all ranks of a job get one decision. ``attnctl which`` explains each step.

    Args:
        profile: the hand-written profile.
        seqlen_q: queries; lengths that the profile does not list are allowed.
        seqlen_k: keys; without it as many as queries, or what the profile says.
        device_name: as ``torch.cuda.get_device_name()`` gives it; found out if not given.
        pass_name: "forward" or "backward".
        tuned_dir: a folder of tuned profiles to look in first.

    Returns:
        The kernel's parameters by the kernel's own names, and ``sparse_block`` where it has one.

    Raises:
        attnctl.errors.AttnctlError: the profile has errors, no config is allowed at these lengths, or a file that is
            needed cannot be read.
    """
    from attnctl.profile import runtime  # noqa: PLC0415 - importing attnctl costs nothing

    question = runtime.Question(
        profile=os.path.abspath(profile),  # noqa: PTH100 - a Path would cost more than the answer
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        device_name=device_name,
        pass_name=pass_name,
        tuned_dir=None if tuned_dir is None else os.path.abspath(tuned_dir),  # noqa: PTH100
    )
    return runtime.load_config(question)
