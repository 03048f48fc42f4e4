"""The loop of a worker: one request, one reply.

Nothing here imports a framework: that one is missing, or that there is no such family, is an answer and not a crash.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Literal

from attnctl import extras
from attnctl.errors import Unavailable
from attnctl.gpu.protocol import (
    Bye,
    CompileReply,
    Failed,
    FinalsReply,
    Hello,
    Phase,
    PhaseName,
    Reply,
    Request,
    Result,
)
from attnctl.worker.channel import Channel
from attnctl_kernels.contract import Span
from attnctl_kernels.families import get_family

FRAMEWORK_EXTRA = "tune"  # the optional dependency group that brings what every worker needs


def import_framework(family: str) -> None:
    """All that the first request would wait for."""
    with contextlib.suppress(Exception):  # Hello tries again, and reports it
        launcher = get_family(family).launcher()
        from attnctl.worker import session  # noqa: F401, PLC0415

        launcher.warm_up()


def serve(channel: Channel) -> None:
    """Answer requests until :class:`Bye`."""
    server = Server(channel)
    while not isinstance(request := channel.receive(), Bye):
        channel.send(server.answer(request))
    sys.stdout.flush()
    os._exit(0)  # a framework's own clean-up can hang


class Server:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._session: Any = None
        self._extra = FRAMEWORK_EXTRA

    def answer(self, request: Request) -> Reply:
        try:
            if isinstance(request, Hello):
                return self._hello(request)
            handler: Callable[..., Reply] = getattr(self._session, request.op)
            begun = time.time()
            return _stamped(handler(request), begun)
        except ModuleNotFoundError as error:
            name = error.name or str(error)
            if not extras.is_complete(self._extra):
                return Failed(reason=name, extra=self._extra)
            traceback.print_exc()  # to the log
            where = traceback.extract_tb(error.__traceback__)[-1]
            return Failed(reason=f"{where.filename}:{where.lineno}: there is no module {name}")
        except Unavailable as error:
            traceback.print_exc()  # to the log
            return Failed(reason=error.message, hint=error.hint)
        except Exception as error:  # noqa: BLE001 - not a candidate's fault: those are results
            traceback.print_exc()  # to the log
            return Failed(reason=f"{type(error).__name__}: {error}")

    def _hello(self, request: Hello) -> Reply:
        try:
            family = get_family(request.family)
        except KeyError:
            return Failed(reason=f"there is no kernel family {request.family}")
        if not family.tunable:
            return Failed(reason=f"attnctl knows the rules of {request.family}, but cannot run it")
        self._extra = family.extra
        launcher = family.launcher()
        self._extra = FRAMEWORK_EXTRA
        from attnctl.worker.session import Session  # noqa: PLC0415 - imports the framework

        self._extra = family.extra  # kernels are imported late
        self._session = Session(family, launcher, self._announce)
        return self._session.hello(request)

    def _announce(self, phase: PhaseName, subject: str | None = None) -> None:
        self._channel.send(Phase(name=phase, subject=subject))


def _stamped(reply: Reply, begun: float) -> Reply:
    """When the worker was busy goes with what it found: a report draws the sweep's time line from it."""
    lane: Literal["compile", "measure"] = "compile" if isinstance(reply, CompileReply) else "measure"
    span = Span(lane=lane, worker=os.getpid(), begun=begun, ended=time.time())
    if isinstance(reply, CompileReply):
        compiled = reply.result.compiled and reply.result.compiled.model_copy(update={"span": span})
        return CompileReply(result=reply.result.model_copy(update={"span": span, "compiled": compiled}))
    return reply.model_copy(update={"span": span}) if isinstance(reply, (Result, FinalsReply)) else reply
