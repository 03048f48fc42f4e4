"""The worker's side of :mod:`attnctl.gpu.template`: import once, fork often."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import time
from pathlib import Path

_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED


def fork_workers(control: int) -> tuple[int, int]:
    """Fork for each request on the socket ``control``. Returns in the forks: request and reply descriptor of each.

    What was imported by now is shared between them.
    """
    gc.collect()
    gc.freeze()  # the forks' first collection would copy every page that holds an object
    tool = socket.socket(fileno=control)
    while True:
        message, descriptors, *_ = socket.recv_fds(tool, 16, 3)
        if not message:  # the tool has closed its end
            os._exit(0)
        if not _is_safe():
            tool.send(b"0")
        elif pid := _fork():
            tool.send(str(pid).encode())
        else:
            tool.close()
            return _with_log(*descriptors)
        for each in descriptors:
            os.close(each)


def _is_safe() -> bool:
    """A second thread might hold a lock for ever in a fork; a CUDA driver that is initialised does not survive one."""
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:  # nobody has loaded it
        return True
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == _NOT_INITIALISED)


def _fork() -> int:
    """0 in the worker. In the template its process id, once the process between the two has left it to the tool."""
    out, into = os.pipe()
    if middle := os.fork():
        os.close(into)
        os.waitpid(middle, 0)
        pid = os.read(out, 32)
        os.close(out)
        return int(pid)
    middle = os.getpid()
    if worker := os.fork():
        os.write(into, str(worker).encode())
        os._exit(0)
    os.close(out)
    os.close(into)
    os.setsid()
    while os.getppid() == middle:
        time.sleep(0.001)
    return 0


def _with_log(requests: int, replies: int, log: int) -> tuple[int, int]:
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    return requests, replies
