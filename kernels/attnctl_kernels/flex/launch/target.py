"""Describe a GPU to inductor and Triton where there is none, so that both generate code for it.

Inductor asks a device interface and a few functions of `torch.cuda`; Triton asks its active driver. All are put back
afterwards: what they said is cached in several places, and those caches are emptied.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo import device_interface
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.hints import DeviceProperties
from torch.utils import _triton

from attnctl_kernels.arch import ARCHES

_WARP = 32
_THREADS_PER_SM = {"sm_86": 1536, "sm_89": 1536, "sm_110": 1536, "sm_120": 1536}  # 2048 elsewhere
_NUM_SMS = 132  # for arches whose parts differ; no tile depends on it


@contextmanager
def described(arch: str) -> Iterator[None]:
    """Within, `cuda:0` is a device of ``arch``. Nothing can run on it."""
    major, minor = divmod(int(arch.removeprefix("sm_")), 10)
    facts = _properties(arch, major, minor)
    interfaces = dict.fromkeys(("cuda", "cuda:0"), _interface(facts))
    answers = {"get_device_properties": facts, "get_device_capability": (major, minor), "current_device": 0}
    operators = importlib.import_module("torch._higher_order_ops.flex_attention")
    with ExitStack() as stack:
        _forget()
        stack.callback(_forget)
        device_interface.get_interface_for_device("cuda")  # fills the table
        stack.enter_context(mock.patch.dict(device_interface.device_interfaces, interfaces))
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, return_value=answer))
        if not torch.backends.cuda.is_built():  # its fake copy between CUDA tensors needs one that is
            stack.enter_context(mock.patch.object(operators, "_permute_strides", _permute_strides))
        stack.enter_context(mock.patch.object(triton_helpers, "set_driver_to_gpu"))
        stack.enter_context(_active_driver(facts))
        yield


def _forget() -> None:
    for remembers in (DeviceProperties.create, _triton.has_triton, _triton.has_triton_tma_device):
        getattr(remembers, "cache_clear", getattr(remembers, "__func__", remembers).cache_clear)()


def _properties(arch: str, major: int, minor: int) -> SimpleNamespace:
    limits = ARCHES[arch]
    return SimpleNamespace(
        name=arch,
        major=major,
        minor=minor,
        multi_processor_count=limits.num_sms or _NUM_SMS,
        regs_per_multiprocessor=limits.sm_registers,
        max_threads_per_multi_processor=_THREADS_PER_SM.get(arch, 2048),
        max_threads_per_block=1024,
        shared_memory_per_block_optin=limits.smem_bytes,
        warp_size=_WARP,
        gcnArchName="",
    )


def _interface(facts: SimpleNamespace) -> type[Any]:
    """Answers about the target; what would reach a device is inherited, and fails."""

    def always(answer: Any) -> Any:
        return staticmethod(lambda *_, **__: answer)

    class Worker(device_interface.CudaInterface.Worker):
        current_device = always(0)
        get_device_properties = always(facts)

    class Target(device_interface.CudaInterface):
        current_device = always(0)
        device_count = always(1)
        is_available = always(answer=True)
        is_bf16_supported = always(answer=True)
        is_triton_capable = always(answer=True)
        raise_if_triton_unavailable = always(None)
        get_device_properties = always(facts)
        get_compute_capability = always(10 * facts.major + facts.minor)

    Target.Worker = Worker
    return Target


@contextmanager
def _active_driver(facts: SimpleNamespace) -> Iterator[None]:
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - not on a machine that runs on the CPU alone
    from triton.runtime import driver  # noqa: PLC0415

    target = GPUTarget("cuda", 10 * facts.major + facts.minor, _WARP)
    before = driver._active  # noqa: SLF001 - there is no public way to put it back
    driver.set_active(SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0))
    try:
        yield
    finally:
        driver._active = before  # noqa: SLF001


def _permute_strides(out: Tensor, query_strides: tuple[int, ...]) -> Tensor:
    """Upstream's function without its copy, which fake tensors do not need: the strides of the queries."""
    order = sorted(range(out.ndim), key=lambda dim: -query_strides[dim])
    return torch.empty_permuted(out.shape, order, dtype=out.dtype, device=out.device)
