"""``python -m attnctl.worker``: started by :mod:`attnctl.gpu.process`, never by hand."""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import os
import resource
import signal
import sys

from attnctl.worker.channel import Channel
from attnctl.worker.forks import fork_workers
from attnctl.worker.server import import_framework, serve

_PR_SET_PDEATHSIG = 1
_BACKGROUND_NICE = 5  # compilers yield to the host side of what is being measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="attnctl.worker")
    parser.add_argument("--requests", type=int, help="file descriptor to read requests from")
    parser.add_argument("--replies", type=int, help="file descriptor to write replies to")
    parser.add_argument("--forks", type=int, help="socket to serve as a template of workers, instead of these")
    parser.add_argument("--parent", type=int, required=True, help="process id whose end is this worker's end")
    parser.add_argument("--family", required=True, help="kernel family whose framework to import right away")
    parser.add_argument("--background", action="store_true", help="yield the processor to others")
    arguments = parser.parse_args()
    _bind_life_to(arguments.parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort must not fill the disk
    faulthandler.enable()  # an abort leaves its stack in the log
    if arguments.background:
        os.nice(_BACKGROUND_NICE)
    requests, replies = arguments.requests, arguments.replies
    if arguments.forks is not None:
        import_framework(arguments.family)
        requests, replies = fork_workers(arguments.forks)
        _bind_life_to(arguments.parent)  # forks do not inherit it
    channel = Channel(requests, replies)
    import_framework(arguments.family)  # while the tool gets ready to ask
    serve(channel)


def _bind_life_to(parent: int) -> None:
    """Die with the tool, also while a kernel or a compiler holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has died before the line above
        sys.exit(1)


if __name__ == "__main__":
    main()
