"""The devices of one sweep. Each has a thread on which everything that it does happens, one thing after the other.

The first device leads: it prepares and runs the finals, where contenders must meet on one device. The others help with
the screening. All are of one model, because times of different models say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Self, TypeVar

from attnctl.errors import AttnctlError, Unavailable, UsageError
from attnctl.gpu.closing import Closing
from attnctl.gpu.interfaces import MeasurerLike
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Environment
from attnctl_kernels.contract import join_words

_T = TypeVar("_T")


class Lane:
    """One device and its thread, on which its processes are started too: they die with it."""

    def __init__(self, open_measurer: Callable[[], MeasurerLike]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lane")
        self._opened = self._thread.submit(open_measurer)

    @property
    def measurer(self) -> MeasurerLike:
        """Waits until it is open. Raises what opening it has raised."""
        return self._opened.result()

    def do(self, work: Callable[[MeasurerLike], _T]) -> Future[_T]:
        """Do ``work`` when the device is free."""
        return self._thread.submit(lambda: work(self.measurer))

    def close(self) -> None:
        """End what is running, and the processes."""
        if self._opened.done() and not self._opened.exception():
            self.measurer.interrupt()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if not self._opened.cancelled() and not self._opened.exception():
            self.measurer.close()


class Lanes(Closing):
    """Lanes of one model, the leading one first."""

    def __init__(self, lanes: Sequence[Lane] = ()) -> None:
        self.all = list(lanes)

    @classmethod
    def of(cls, measurer: MeasurerLike) -> Self:
        """One device that is open already."""
        return cls([Lane(lambda: measurer)])

    def add(self, devices: Sequence[str], open_one: Callable[[str], Measurer]) -> None:
        """Open ``devices``, side by side."""
        self.all += [Lane(partial(open_one, each)) for each in devices]

    def lock(self) -> None:
        """Wait for all of them to be open, see that they are of one model, and lock them.

        Raises:
            UsageError: they are of several models.
            Unavailable: one of them cannot be had.
        """
        measurers = [each.measurer for each in self.all]
        _require_one_model([each.environment for each in measurers])
        # In the same order in every tool, so that two of them never wait for each other.
        for measurer in sorted(measurers, key=lambda each: each.environment.lock_name):
            assert isinstance(measurer, Measurer)
            measurer.lock()

    @property
    def lead(self) -> MeasurerLike:
        return self.all[0].measurer

    def on_lead(self, work: Callable[[MeasurerLike], _T]) -> _T:
        """What the leading device makes of ``work``. If it is lost, the next one leads, and starts it again.

        Raises:
            Unavailable: none is left.
        """
        while True:
            lane = self.all[0]
            try:
                return work(lane.measurer)
            except Unavailable as error:
                self.drop(lane, error)

    def drop(self, lane: Lane, error: AttnctlError) -> None:
        """Go on without ``lane``.

        Raises:
            AttnctlError: it was the last.
        """
        self.all.remove(lane)
        lane.close()
        if not self.all:
            raise error

    def close(self) -> None:
        for each in self.all:
            each.close()


def _require_one_model(environments: Sequence[Environment]) -> None:
    models: dict[tuple[object, ...], list[Environment]] = {}
    for each in environments:
        models.setdefault((each.device_name, each.arch, each.num_sms, each.memory_bytes), []).append(each)
    if len(models) > 1:
        groups = [(each[0].device_name, ",".join(one.device for one in each)) for each in models.values()]
        listed = join_words([f"{name} ({devices})" for name, devices in groups], "and")
        raise UsageError(
            f"these devices are not of one model: {listed}; their times say nothing about each other",
            "tune them apart, "
            + join_words([f"--device {devices.replace('cuda:', '')}" for _, devices in groups], "then"),
        )
