"""Compile workers on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import ray
from ray.exceptions import RayError

from attnctl.cluster.actors import Reply
from attnctl.cluster.measurer import one_line
from attnctl.errors import Unavailable
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.farm import Compiler, CompilerLost, Farm
from attnctl.gpu.protocol import Hello, Result
from attnctl_kernels.contract import Candidate, Task


class RayPool(Farm):
    """``starts`` make an actor each."""

    def __init__(self, starts: Sequence[Callable[[], Any]], hello: Hello, deadlines: Deadlines) -> None:
        hello = hello.model_copy(update={"device": "none"})
        super().__init__([partial(ActorCompiler, each, hello, deadlines) for each in starts])


class ActorCompiler(Compiler):
    """One actor. Its loss is that of its node."""

    def __init__(self, start: Callable[[], Any], hello: Hello, deadlines: Deadlines) -> None:
        self._actor = start()
        self._hello = hello
        self._deadlines = deadlines

    def compile(self, task: Task, candidate: Candidate, wanted: Callable[[], bool]) -> Result:
        try:
            reply: Reply = ray.get(self._actor.compile.remote(self._hello, self._deadlines, task, candidate))
        except RayError as error:
            raise CompilerLost(one_line(error)) from None
        if reply.error is not None:
            raise Unavailable(reply.error, reply.hint)
        return cast("Result", reply.value)

    def interrupt(self) -> None:
        ray.kill(self._actor)

    def close(self) -> None:
        ray.kill(self._actor)
