"""An exception of a kernel, a compiler or a driver, as an outcome. Only strings leave this module.

Exceptions hold tracebacks, those hold frames, and frames hold tensors: a stored exception keeps device memory alive.
"""

from __future__ import annotations

import gc
import traceback

from attnctl.errors import Unavailable
from attnctl.gpu.protocol import PhaseName, Result
from attnctl.state import CACHE_FOLDER_VARIABLE
from attnctl.worker.compare import WrongResult
from attnctl.worker.devices import Device
from attnctl_kernels.contract import CompileError, Outcome, OutOfResources

_DETAIL_CHARS = 4000
# As the system words it: compilers pass it on as text.
_OF_THE_MACHINE = ("no space left on device", "disk quota exceeded", "read-only file system", "permission denied")
_HINT = f"kernels are compiled into {CACHE_FOLDER_VARIABLE}: make room, or name a folder there that can be written"
_OUT_OF_RESOURCES = (
    "out of memory",
    "can't allocate memory",
    "out of resource",
    "launchoutofresources",
    "launch_out_of_resources",
    "too many resources requested",
    "insufficient registers",
)


def require_candidates_own(error: BaseException) -> None:
    """Find no candidate guilty of what the disk has done: the sweep ends, and goes on when that is mended.

    Raises:
        Unavailable: the disk is full, or cannot be written.
    """
    if isinstance(error, Unavailable):
        raise error
    if any(words in str(error).lower() for words in _OF_THE_MACHINE):
        raise Unavailable(_reason(error), _HINT) from error


def as_result(error: BaseException, phase: PhaseName, device: Device | None) -> Result:
    """What ``error`` in ``phase`` means; asks the device whether it still works.

    An error of the driver that later calls survive may have left memory behind that is not what it was.

    Raises:
        Unavailable: it means nothing for the candidate.
    """
    require_candidates_own(error)
    outcome = _outcome(error, phase)
    poisoned = device is not None and (not device.healthy() or (outcome is Outcome.LAUNCH_ERROR and _of_driver(error)))
    return Result(outcome=outcome, reason=_reason(error), detail=_detail(error), poisoned=poisoned)


def _of_driver(error: BaseException) -> bool:
    text = f"{type(error).__name__} {error}".lower()
    return "cuda" in text and "error" in text


def collect(device: Device | None) -> None:
    """After the exception is gone: break the cycles that it was part of, and return memory to the device."""
    gc.collect()
    if device is not None:
        device.release()


def _outcome(error: BaseException, phase: PhaseName) -> Outcome:
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, WrongResult):
        return Outcome.WRONG_RESULT
    if isinstance(error, (OutOfResources, MemoryError)) or any(words in text for words in _OUT_OF_RESOURCES):
        return Outcome.OUT_OF_RESOURCES
    if isinstance(error, CompileError) or phase == "compile":
        return Outcome.COMPILE_ERROR
    return Outcome.LAUNCH_ERROR


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name = type(error).__name__
    if isinstance(error, (WrongResult, CompileError, OutOfResources)) and lines:
        return lines[0]
    return f"{name}: {lines[0]}" if lines else name


def _detail(error: BaseException) -> str:
    return "" if isinstance(error, WrongResult) else "".join(traceback.format_exception(error))[-_DETAIL_CHARS:]
