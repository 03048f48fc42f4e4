"""Names of devices, without opening them and without a framework."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia")
_DRIVER = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)")


def device_slug(name: str) -> str:
    """``NVIDIA H200`` -> ``nvidia_h200``. Different chips stay different: nothing but spelling is dropped."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def cpu_name() -> str:
    """Slug of this machine's CPU, as in ``cpu_amd_epyc_7b13``."""
    return f"cpu_{device_slug(_cpu_model()) or 'unknown'}"


def gpu_names() -> tuple[str, ...]:
    """Slugs of the GPUs that this program may use, each kind once.

    A program that has imported torch has a current device, which is the only one then. Otherwise the driver says
    what is there.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return (device_slug(torch.cuda.get_device_name()),)
    models = {device_slug(_line(path, "Model")) for path in _NVIDIA.glob("gpus/*/information")}
    return tuple(sorted(models - {""}))


def driver_version() -> str | None:
    """Of NVIDIA's kernel module; None where there is none."""
    found = _DRIVER.search(_line(_NVIDIA / "version", "NVRM version"))
    return found[1] if found else None


def _cpu_model() -> str:
    return _line(Path("/proc/cpuinfo"), "model name", "Model") or os.uname().machine


def _line(path: Path, *prefixes: str) -> str:
    """The value of the first ``prefix: value`` line of a file of the system; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(prefixes)), "")
