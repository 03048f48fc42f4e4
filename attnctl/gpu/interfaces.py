"""What a sweep needs from a device. Worker processes provide it, and so does the replay of a journal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from attnctl.gpu.closing import Closing
from attnctl.gpu.protocol import CachePolicy, Contender, Environment, FinalsReply, Prepared, Result
from attnctl_kernels.contract import Candidate, Task


class MeasurerLike(Closing, Protocol):
    """Measures candidates, one at a time. A candidate's fault is a :class:`Result`, never an exception."""

    @property
    def environment(self) -> Environment: ...

    @property
    def compiles(self) -> bool:
        """False: the family has nothing to compile ahead, so a pool is no use."""

    @property
    def device_count(self) -> int:
        """Devices of this kind on this machine."""

    def prepare(self, task: Task, cache: CachePolicy = "cold") -> Prepared:
        """Make inputs and reference; what is measured later is measured on this task."""

    def measure(
        self,
        candidate: Candidate,
        best_us: float | None = None,
        *,
        max_samples: int = 2000,
        second_seed: bool = False,
        probes: bool = False,
    ) -> Result:
        """Check, then time. ``best_us`` allows giving up on a clearly slower one: not for default or incumbent."""

    def warm_up(self, count: int) -> None:
        """Expect ``count`` finals soon, each in a fresh process."""

    def prepare_finals(self, count: int) -> None:
        """Get ``count`` of them ready, inputs and reference included; the device is in use meanwhile."""

    def finals(self, contenders: Sequence[Contender], cycles: int) -> FinalsReply:
        """Interleaved samples in a fresh process, on inputs of another seed than before."""

    def interrupt(self) -> None:
        """From another thread: end what is running. Only ``close`` may be called then."""


class PoolLike(Closing, Protocol):
    """Compiles candidates ahead of their measurement, cheapest first if they are submitted so."""

    @property
    def size(self) -> int:
        """How many are compiled at a time."""

    def submit(self, task: Task, candidate: Candidate) -> Future[Result]:
        """Queue a candidate, or find it in the queue. What its compiler does is a result.

        That no compiler can be had is an exception.
        """

    def cancel(self) -> None:
        """Forget what is queued and kill what is compiling; what is submitted later is compiled."""
