"""Names of devices, without opening them and without a framework."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")


def device_slug(name: str) -> str:
    """``NVIDIA H200`` -> ``nvidia_h200``. Different chips stay different: nothing but spelling is dropped."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def cpu_name() -> str:
    """Slug of this machine's CPU, as in ``cpu_amd_epyc_7b13``."""
    return f"cpu_{device_slug(_cpu_model()) or 'unknown'}"


def gpu_name() -> str | None:
    """Slug of the GPU that this program would use; None where there is none, or where they differ.

    A program that has imported torch has a current device. Otherwise the driver says what is there.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return device_slug(torch.cuda.get_device_name())
    models = {_line(path, "Model") for path in _NVIDIA.glob("*/information")}
    return device_slug(models.pop()) if len(models) == 1 else None


def _cpu_model() -> str:
    return _line(Path("/proc/cpuinfo"), "model name", "Model") or os.uname().machine


def _line(path: Path, *prefixes: str) -> str:
    """The value of the first ``prefix: value`` line of a file of the system; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(prefixes)), "")
