"""A device on another node, as a sweep sees it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import ray
from ray.exceptions import RayError

from attnctl.cluster.actors import Facts, Reply
from attnctl.errors import MissingExtra, Unavailable
from attnctl.gpu.closing import Closing
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import CachePolicy, Contender, Environment, FinalsReply, Hello, Prepared, Result
from attnctl_kernels.contract import Candidate, Task

_CLOSE_S = 10.0


class RayMeasurer(Closing):
    """A :class:`~attnctl.gpu.interfaces.MeasurerLike` whose :class:`~attnctl.gpu.measurer.Measurer` is an actor.

    A lost actor is :class:`Unavailable`: the sweep goes on with its other devices, and gives the candidate to one.
    """

    device_count = 1

    def __init__(self, actor: Any, hello: Hello, deadlines: Deadlines, lock_timeout_s: float) -> None:
        """Open the device.

        Raises:
            Unavailable: it cannot be had.
        """
        self._actor = actor
        self.host = "its node"
        facts = cast("Facts", self._get(actor.open.remote(hello, deadlines, lock_timeout_s)))
        self.host, self.compiles = facts.host, facts.compiles
        # The journal is that of a model, not of one device: another node may go on with it.
        shared = f"ray-{facts.environment.device_name}"
        device = f"{facts.host}/{facts.environment.uuid or facts.environment.device}"
        self.environment: Environment = facts.environment.model_copy(update={"uuid": shared, "device": device})

    def prepare(self, task: Task, cache: CachePolicy = "cold") -> Prepared:
        return cast("Prepared", self._call("prepare", task, cache))

    def measure(
        self,
        candidate: Candidate,
        best_us: float | None = None,
        *,
        max_samples: int = 2000,
        second_seed: bool = False,
        probes: bool = False,
    ) -> Result:
        options = {"max_samples": max_samples, "second_seed": second_seed, "probes": probes}
        return cast("Result", self._call("measure", candidate, best_us, **options))

    def warm_up(self, count: int) -> None:
        self._call("warm_up", count)

    def prepare_finals(self, count: int) -> None:
        self._call("prepare_finals", count)

    def finals(self, contenders: Sequence[Contender], cycles: int) -> FinalsReply:
        return cast("FinalsReply", self._call("finals", contenders, cycles))

    def interrupt(self) -> None:
        """The actor's end takes its worker processes along."""
        ray.kill(self._actor)

    def close(self) -> None:
        with contextlib.suppress(RayError):  # it may be gone already
            ray.get(self._actor.close.remote(), timeout=_CLOSE_S)
        ray.kill(self._actor)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return self._get(self._actor.call.remote(name, *args, **options))

    def _get(self, reference: Any) -> Any:
        try:
            reply = cast("Reply", ray.get(reference))
        except RayError as error:
            raise Unavailable(f"{self.host} was lost: {one_line(error)}") from None
        if reply.extra:
            raise MissingExtra(f"{self.host}: {reply.error}", reply.extra)
        if reply.error is not None:
            raise Unavailable(f"{self.host}: {reply.error}", reply.hint)
        return reply.value


def one_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
