"""Compile workers: one that aborts or hangs costs one candidate, and nobody waits for ever."""

import os
import signal
import time

import pytest
from worker_tasks import HELLO, candidate, task

from attnctl.errors import Unavailable
from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello
from attnctl_kernels.contract import Outcome


@pytest.fixture(scope="module")
def pool(surroundings, tmp_path_factory):
    """One worker for all tests but the last."""
    with CompilePool(HELLO, 1, Deadlines(compile=4), tmp_path_factory.mktemp("state")) as pool:
        yield pool


def test_each_failure_costs_one_candidate(pool):
    faults = ["none", "compile_error", "compile_abort", "compile_hang", "none"]
    for fault in faults:
        pool.submit(task(), candidate(fault))
    done = list(pool.completed())
    assert [each.config["fault"] for each, _ in done] == faults
    results = [result for _, result in done]
    assert [str(each.outcome) for each in results] == [
        "ok",
        "compile_error",
        "worker_died",
        "timeout",
        "ok",
    ]
    assert results[0].compiled.binary == candidate().key
    assert results[1].reason == "tile 7 is not supported"
    assert results[2].reason == "killed by SIGABRT"
    assert results[3].reason == "deadline of 4 s passed in compile"


def test_worker_that_somebody_else_killed_is_replaced(pool):
    pool.submit(task(), candidate("none"))
    list(pool.completed())
    (worker,) = pool._workers
    pool.submit(task(), candidate("compile_hang"))
    time.sleep(0.5)  # it compiles by then; if it does not, the result is the same
    os.kill(worker.pid, signal.SIGKILL)
    ((_, result),) = pool.completed()
    assert result.outcome is Outcome.TIMEOUT


def test_tasks_share_a_pool(pool):
    one, two = task(), task(seqlen_q=64, seqlen_k=64)
    pool.submit(one, candidate(delay_us=1))
    pool.submit(two, candidate(delay_us=2))
    pool.submit(one, candidate(delay_us=3))
    assert [each.config["delay_us"] for each, _ in pool.completed(two)] == [2]
    assert [each.config["delay_us"] for each, _ in pool.completed(one)] == [1, 3]
    assert list(pool.completed()) == []


def test_pool_that_cannot_start_says_so(surroundings, tmp_path):
    with CompilePool(Hello(family="nobody", arch=None, device="cpu"), 2, Deadlines(), tmp_path) as pool:
        pool.submit(task(), candidate())
        with pytest.raises(Unavailable, match="there is no kernel family nobody"):
            list(pool.completed())


def test_cancel_ends_the_wait(pool):
    pool.submit(task(), candidate())
    pool.submit(task(), candidate("compile_hang"))
    pool.submit(task(), candidate(delay_us=1))
    completed = pool.completed()
    assert next(completed)[1].outcome is Outcome.OK
    pool.cancel()
    assert list(completed) == []
    assert list(pool.completed()) == []
