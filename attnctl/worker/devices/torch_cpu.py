"""PyTorch on the CPU."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attnctl.gpu.names import cpu_name
from attnctl.gpu.protocol import CachePolicy
from attnctl.worker.devices import Device, Run

COUNT_VARIABLE = "ATTNCTL_CPU_DEVICES"  # lets one machine stand for several devices, cpu:0, cpu:1, ...
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_FLUSH_LIMIT = 64 << 20  # a larger last-level cache is shared by more cores than a kernel here uses


class TorchCpu(Device):
    reference_flop = 1e10

    def __init__(self, name: str) -> None:
        super().__init__("cpu")
        index = name.partition(":")[2]
        if int(index or 0) >= self.count():
            raise RuntimeError(f"there is no {name}; {COUNT_VARIABLE} says how many times this machine's CPU counts")
        self._threads = _threads()
        torch.set_num_threads(self._threads)
        self._cache_bytes = _last_level_cache_bytes()
        self._flush = torch.zeros(min(self._cache_bytes, _FLUSH_LIMIT) // 4, dtype=torch.int32)

    def count(self) -> int:
        return int(os.environ.get(COUNT_VARIABLE, "1"))

    def facts(self) -> dict[str, Any]:
        return {
            "device_name": cpu_name(),
            "threads": self._threads,
            "l2_bytes": self._cache_bytes,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        }

    def synchronize(self) -> None:
        pass

    def sample_us(self, runs: Sequence[Run], cache: CachePolicy, between: Run | None = None) -> list[float]:
        samples = []
        for run in runs:
            if cache == "cold":
                self._flush.add_(1)
            begun = time.perf_counter_ns()
            run()
            samples.append((time.perf_counter_ns() - begun) / 1e3)
            if between:
                between()
        return samples

    def healthy(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def preheat(self, seconds: float) -> None:
        square = torch.rand(256, 256)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            square = (square @ square).clamp_(0, 1)


def _threads() -> int:
    """One per processor that this process may use; fewer if the user says so."""
    usable = len(os.sched_getaffinity(0))
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, int(wanted)) if wanted.isdecimal() and int(wanted) else usable


def _last_level_cache_bytes() -> int:
    sizes = []
    for path in _CACHES.glob("index*/size"):
        number, unit = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip()).groups()
        sizes.append(int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit])
    return max(sizes, default=32 << 20)


DEVICE = TorchCpu
