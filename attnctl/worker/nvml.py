"""Clocks, limits and throttle reasons of one NVIDIA device; what NVML does not say is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

# Bits of nvmlDeviceGetCurrentClocksEventReasons that say why clocks are low.
_REASONS = {0x04: "power_cap", 0x08: "hw_slowdown", 0x20: "thermal", 0x40: "thermal", 0x80: "power_brake"}


class Nvml:
    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def open(cls, uuid: str | None) -> Self | None:
        """The device with this UUID; None without nvidia-ml-py, without a driver, or for another kind of device."""
        if uuid is None:
            return None
        try:
            import pynvml  # noqa: PLC0415 - optional

            pynvml.nvmlInit()
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except Exception:  # noqa: BLE001 - a missing module or any of NVML's errors: measured without it
            return None

    def facts(self) -> dict[str, Any]:
        """Fields of the :class:`~attnctl.gpu.protocol.Environment`."""
        library = self._library
        watts = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        facts = {
            "driver": _ask(library.nvmlSystemGetDriverVersion),
            "power_limit_w": None if watts is None else watts / 1000,
            "clock_default_mhz": self._ask("nvmlDeviceGetDefaultApplicationsClock", library.NVML_CLOCK_SM),
            "clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
        }
        return {name: value for name, value in facts.items() if value is not None}

    def other_processes(self) -> tuple[int, ...]:
        """Compute processes on the device. Ask before this process uses it: in a container its id is not NVML's."""
        return tuple(process.pid for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or ())

    def sm_clock_mhz(self) -> int | None:
        return self._ask("nvmlDeviceGetClockInfo", self._library.NVML_CLOCK_SM)

    def throttle(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the older name of the same call
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(sorted({name for bit, name in _REASONS.items() if bits & bit}))

    def _ask(self, function: str, *arguments: Any) -> Any:
        call = getattr(self._library, function, None)
        return None if call is None else _ask(lambda: call(self._handle, *arguments))


def _ask(call: Callable[[], _T]) -> _T | None:
    try:
        return call()
    except Exception:  # noqa: BLE001 - NVML raises one class per reason, "not supported" among them
        return None
