"""A machine that has no process, file or descriptor to give: fewer compilers, or a word, and nobody waits for ever."""

import os
import resource
import threading

import pytest
from worker_tasks import HELLO, candidate, task

from attnctl.errors import Unavailable
from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.farm import Compiler, CompilerLost, Farm
from attnctl.gpu.protocol import Result
from attnctl_kernels.contract import Outcome


class Right(Compiler):
    def compile(self, task, candidate, wanted):
        return Result(outcome=Outcome.OK)

    def interrupt(self):
        pass

    close = interrupt


def refused():
    raise CompilerLost("a worker cannot be started: Resource temporarily unavailable")


def test_a_compiler_that_cannot_be_made_leaves_the_work_to_the_others():
    with Farm([refused, Right, refused]) as farm:
        submitted = [farm.submit(task(), candidate(delay_us=number)) for number in range(4)]
        assert [each.result(20).outcome for each in submitted] == [Outcome.OK] * 4


def test_without_any_compiler_everybody_is_told_why():
    with Farm([refused, refused]) as farm, pytest.raises(Unavailable, match="Resource temporarily unavailable"):
        farm.submit(task(), candidate()).result(20)


def test_a_pool_that_the_system_gives_no_descriptors_says_so(surroundings, tmp_path, monkeypatch):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    monkeypatch.setenv("ATTNCTL_FORK", "0")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, limit[1]))
    try:
        with CompilePool(HELLO, 1, Deadlines(), tmp_path) as pool:
            with pytest.raises(Unavailable, match="a worker cannot be started: Too many open files"):
                pool.submit(task(), candidate()).result(20)
            assert pool.size == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert not died
