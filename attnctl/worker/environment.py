"""What is measured on: the device, the machine's state, and the versions that make a result stale."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata

from attnctl.gpu.protocol import Environment, Hello
from attnctl.worker.devices import Device
from attnctl.worker.nvml import Nvml
from attnctl_kernels.contract import Launcher

_PACKAGES = ("attnctl", "torch", "triton", "jax")


def describe(hello: Hello, device: Device | None, launcher: Launcher, nvml: Nvml | None) -> Environment:
    facts = device.facts() if device else {"device_name": hello.device}
    facts.setdefault("arch", hello.arch)
    if nvml:
        facts |= nvml.facts()
        facts["other_processes"] = nvml.other_processes()
    return Environment(device=hello.device, versions=_versions() | launcher.versions(), **facts)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
