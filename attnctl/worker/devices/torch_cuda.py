"""PyTorch on a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from attnctl.gpu.names import device_slug
from attnctl.gpu.protocol import CachePolicy
from attnctl.worker.devices import Device, Run

_HOLD_LIMIT_S = 0.05
_HOLD_CLOCK_HZ = 2e9  # at or above any GPU's clock: a hold may last longer than asked, not shorter


class TorchCuda(Device):
    reference_flop = 2e13

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if not torch.cuda.is_available():
            raise RuntimeError("no CUDA device is visible")
        if (self.torch_device.index or 0) >= torch.cuda.device_count():
            raise RuntimeError(f"there is no {name}; CUDA devices here: {torch.cuda.device_count()}")
        self._properties = torch.cuda.get_device_properties(self.torch_device)
        self._flush: torch.Tensor | None = None
        self._host_s = 1e-4  # the host's time to queue one call, in the latest batch

    def use(self) -> None:
        torch.cuda.set_device(self.torch_device)

    def count(self) -> int:
        return torch.cuda.device_count()

    def allocated_bytes(self) -> int:
        return torch.cuda.memory_reserved(self.torch_device)

    def facts(self) -> dict[str, Any]:
        properties = self._properties
        uuid = getattr(properties, "uuid", None)
        return {
            "device_name": device_slug(properties.name),
            "arch": f"sm_{properties.major}{properties.minor}",
            "uuid": f"GPU-{uuid}" if uuid else None,
            "num_sms": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size,
            "memory_bytes": properties.total_memory,
        }

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def sample_us(self, runs: Sequence[Run], cache: CachePolicy, between: Run | None = None) -> list[float]:
        """Events around each call, queued while the device waits.

        Without that wait, the start event of a call whose launch takes the host longer than the device would be
        reached before the kernel is queued, and the sample would show the host.
        """
        if cache == "cold" and self._flush is None:
            self._flush = torch.zeros(2 * self._properties.L2_cache_size // 4, dtype=torch.int32, device=self.name)
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in runs]
        hold_s = min(1.5 * self._host_s * len(runs), _HOLD_LIMIT_S)
        torch.cuda._sleep(int(hold_s * _HOLD_CLOCK_HZ))  # noqa: SLF001 - no public way to make a stream wait
        begun = time.perf_counter()
        for run, (start, end) in zip(runs, events, strict=True):
            if cache == "cold":
                self._flush.zero_()
            start.record()
            run()
            end.record()
            if between:
                between()
        self._host_s = (time.perf_counter() - begun) / len(runs)
        self.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]

    def capture(self, runs: Sequence[Run]) -> Run | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for run in runs:
                    run()
        except Exception:  # noqa: BLE001 - whatever a kernel does that a graph may not hold
            return None
        replay: Run = graph.replay
        return replay

    def healthy(self) -> bool:
        try:
            self.synchronize()
            torch.ones(1, device=self.torch_device).item()
        except RuntimeError:
            return False
        return True

    def release(self) -> None:
        if self.healthy():
            torch.cuda.empty_cache()

    def preheat(self, seconds: float) -> None:
        square = torch.rand(4096, 4096, dtype=torch.bfloat16, device=self.torch_device)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(8):
                square @ square
            self.synchronize()


DEVICE = TorchCuda
