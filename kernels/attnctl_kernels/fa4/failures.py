"""Say in one line what a compiler's exception means."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MANGLED = re.compile(r"\w{64,}")  # names of kernels with all their argument types
_REFUSED_LAUNCH = re.compile(r"out[ _]?of[ _]?resources|shared memory|too many resources", re.IGNORECASE)


def one_line(error: BaseException) -> str:
    """The first line of the message that says something; for a bare assertion, the assertion itself."""
    text = _MANGLED.sub("the kernel", _COLOUR.sub("", str(error)))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    if line not in ("", "None"):
        return f"{type(error).__name__}: {line.removeprefix('error:').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    kernel = [frame for frame in frames if "flash_attn" in frame.filename] or list(frames)
    if not kernel:
        return type(error).__name__
    return f"{type(error).__name__} at {Path(kernel[-1].filename).name}:{kernel[-1].lineno}: {kernel[-1].line}"


def is_out_of_resources(error: BaseException) -> bool:
    """Whether a device refused a launch for lack of shared memory, registers or threads."""
    return _REFUSED_LAUNCH.search(str(error)) is not None
