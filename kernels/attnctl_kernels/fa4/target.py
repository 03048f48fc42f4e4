"""The arch that a process without a GPU compiles flash-attn-4 for: one per process, as it is read at import."""

from __future__ import annotations

import os
from typing import Any

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import TARGET_VARIABLE

TARGETS = ("sm_90", "sm_100")


def target() -> str:
    """Compile workers are told; anything else compiles for the arch that fa4 runs on."""
    return os.environ.get(TARGET_VARIABLE) or TARGETS[0]


def describe_target() -> None:
    """Before flash-attn-4 is imported: name the arch, and answer what its kernels ask the device while compiling."""
    arch = target()
    os.environ["CUTE_DSL_ARCH"] = f"{arch}a"
    os.environ["FLASH_ATTENTION_ARCH"] = arch
    os.environ["FLASH_ATTENTION_NUM_SMS"] = str(ARCHES[arch].num_sms)
    if arch != TARGETS[0]:
        import cutlass.utils
        from cutlass.utils import hardware_info

        cutlass.utils.HardwareInfo = TargetDevice  # type: ignore[misc,assignment]
        # It is imported from there, too.
        hardware_info.HardwareInfo = TargetDevice  # type: ignore[misc,assignment]


class TargetDevice:
    """Stands in for ``cutlass.utils.HardwareInfo``, which would ask the driver."""

    def __init__(self, device_id: int = 0) -> None:
        self._num_sms = ARCHES[target()].num_sms

    def get_device_multiprocessor_count(self) -> int:
        return self._num_sms

    def get_max_active_clusters(self, cluster_size: int, stream: Any = None) -> int:
        return self._num_sms // cluster_size
