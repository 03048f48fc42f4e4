"""The worker's end of the pipes."""

from __future__ import annotations

import os
import queue
import signal
import threading

from attnctl.gpu.protocol import REQUEST, Reply, Request


class Channel:
    """Reads on a thread of its own, so that the end of the requests is seen during a long measurement too."""

    def __init__(self, requests: int, replies: int) -> None:
        os.set_inheritable(requests, False)  # a child of a kernel must not hold them open
        os.set_inheritable(replies, False)
        self._requests = os.fdopen(requests, "rb")
        self._replies = replies
        self._received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def receive(self) -> Request:
        return REQUEST.validate_json(self._received.get())

    def send(self, reply: Reply) -> None:
        rest = memoryview(reply.model_dump_json().encode() + b"\n")
        while rest:
            rest = rest[os.write(self._replies, rest) :]

    def _read(self) -> None:
        for line in self._requests:
            self._received.put(line)
        # The tool is gone. Compilers that this worker has started go with it.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
