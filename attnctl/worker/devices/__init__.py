"""Devices: one module per framework and kind, ``<framework>_<kind>.py`` with a class ``DEVICE``.

Inputs, references and comparisons are PyTorch's whatever the framework: a device of another framework converts
at its border (``export``, ``to_torch``).
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attnctl.gpu.protocol import CachePolicy

Run = Callable[[], None]


class Device(ABC):
    """Runs and times kernels."""

    reference_flop: float  # dense operations that a reference may take before it covers a part of the heads only

    def __init__(self, name: str) -> None:
        """Find ``name`` ("cpu", "cuda:0") without using it yet.

        Raises:
            RuntimeError: there is no such device.
        """
        self.name = name
        self.torch_device = torch.device(name)

    def count(self) -> int:
        """Devices of this kind that this process may use."""
        return 1

    def allocated_bytes(self) -> int:
        """Memory of the device that this process holds; 0 where that is not known."""
        return 0

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Fields of the :class:`~attnctl.gpu.protocol.Environment`."""

    def use(self) -> None:  # noqa: B027 - not every device has to be told
        """From here on this process uses the device: the driver lists it."""

    @abstractmethod
    def synchronize(self) -> None: ...

    @abstractmethod
    def sample_us(self, runs: Sequence[Run], cache: CachePolicy, between: Run | None = None) -> list[float]:
        """Latency of each of ``runs``, called once in this order with no host synchronisation in between.

        ``between`` is called after each of them, outside what is timed. It must not synchronise either.
        """

    def capture(self, runs: Sequence[Run]) -> Run | None:
        """``runs`` as one launch; None where the device, or what runs, cannot be recorded."""
        return None

    @abstractmethod
    def healthy(self) -> bool:
        """False after an error that no later call survives."""

    @abstractmethod
    def release(self) -> None:
        """Give cached memory back."""

    @abstractmethod
    def preheat(self, seconds: float) -> None:
        """Matrix products, so that clocks are up before the first sample."""

    def export(self, tensor: torch.Tensor) -> Any:
        """``tensor`` as the framework's array, sharing its memory: later changes are seen by a bound call."""
        return tensor

    def to_torch(self, array: Any) -> torch.Tensor:
        tensor: torch.Tensor = array
        return tensor


def hint(name: str, family: str, *, on_gpu: bool) -> str:
    """What works where the device ``name`` cannot be had; ``on_gpu``: nothing else will do."""
    count = torch.cuda.device_count()
    if not name.startswith("cuda"):
        return "use cpu"
    if count:
        return f"use cuda:0{f' to cuda:{count - 1}' if count > 1 else ''}"
    if not on_gpu:
        return "use cpu"
    return f"{family} needs a GPU: `attnctl doctor` shows what is here; --dry-run and --replay JOURNAL need none"


def open_device(framework: str, name: str) -> Device:
    """The device ``name`` as ``framework`` sees it.

    Raises:
        RuntimeError: it does not exist, or attnctl cannot measure ``framework`` on it.
    """
    kind = name.partition(":")[0]
    module = f"{__name__}.{framework}_{kind}"
    if importlib.util.find_spec(module) is None:
        raise RuntimeError(f"attnctl cannot measure {framework} kernels on {name}")
    device: Device = importlib.import_module(module).DEVICE(name)
    return device
