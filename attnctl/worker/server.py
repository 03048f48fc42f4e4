"""The loop of a worker: one request, one reply."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable

from attnctl.gpu.protocol import Bye, Failed, Phase, PhaseName, Reply, Request
from attnctl.worker.channel import Channel
from attnctl.worker.session import Session
from attnctl_kernels.families import get_family


def serve(channel: Channel, family: str) -> None:
    """Answer requests until :class:`Bye`. The family's framework is imported while the tool gets ready to ask."""
    with contextlib.suppress(Exception):  # Hello tries again, and reports it
        get_family(family).launcher()

    def announce(phase: PhaseName, subject: str | None = None) -> None:
        channel.send(Phase(name=phase, subject=subject))

    session = Session(announce)
    while not isinstance(request := channel.receive(), Bye):
        channel.send(_answer(session, request))
    sys.stdout.flush()
    os._exit(0)  # a framework's own clean-up can hang


def _answer(session: Session, request: Request) -> Reply:
    try:
        handler: Callable[..., Reply] = getattr(session, request.op)
        return handler(request)
    except ModuleNotFoundError as error:
        return Failed(reason=error.name or str(error), extra=session.extra)
    except Exception as error:  # noqa: BLE001 - not a candidate's fault: those are results
        traceback.print_exc()  # to the log
        return Failed(reason=f"{type(error).__name__}: {error}")
