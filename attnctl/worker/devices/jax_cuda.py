"""JAX on a CUDA device, on one stream with PyTorch.

JAX launches on a stream of its own. PyTorch's work moves to that stream: inputs, checks, flushes and events are then in
order with JAX's kernels as they are with PyTorch's, without waiting for the host, and kernels of both frameworks are
timed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from attnctl.gpu.protocol import CachePolicy
from attnctl.worker.devices import Run
from attnctl.worker.devices.torch_cuda import TorchCuda
from attnctl.worker.xla_stream import launch_stream

_QUEUE = 24  # programs; with about 32 in flight JAX makes the host wait, and the device would not be held back


class JaxCuda(TorchCuda):
    def use(self) -> None:
        import jax  # noqa: PLC0415 - the launcher has imported it

        super().use()
        device = jax.devices("cuda")[self.torch_device.index or 0]
        jax.config.update("jax_default_device", device)
        torch.cuda.set_stream(torch.cuda.ExternalStream(launch_stream(device), device=self.torch_device))

    def sample_us(self, runs: Sequence[Run], cache: CachePolicy, between: Run | None = None) -> list[float]:
        """In parts that JAX queues without waiting. What comes between runs may be a program, too."""
        step = _QUEUE // 2 if between else _QUEUE
        samples: list[float] = []
        for start in range(0, len(runs), step):
            samples += super().sample_us(runs[start : start + step], cache, between)
        return samples

    def capture(self, runs: Sequence[Run]) -> Run | None:
        """XLA's programs make graphs of their own."""
        return None

    def export(self, tensor: torch.Tensor) -> Any:
        import jax  # noqa: PLC0415

        return jax.dlpack.from_dlpack(tensor)

    def to_torch(self, array: Any) -> torch.Tensor:
        """A view. DLPack would keep JAX from reusing the buffer for the next run, which the call wants it to."""
        elements = torch.as_tensor(_Bytes(array), device=self.torch_device)
        return elements.view(getattr(torch, array.dtype.name)).view(array.shape)


class _Bytes:
    """The memory of an array as CUDA's array interface describes it, writable: PyTorch refuses anything else."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__cuda_array_interface__ = {
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "data": (array.unsafe_buffer_pointer(), False),
            "version": 3,
        }


DEVICE = JaxCuda
