"""Compile workers: one that aborts or hangs costs one candidate, and nobody waits for ever."""

import os
import re
import signal
import time
from concurrent.futures import CancelledError

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
    with CompilePool(HELLO, 1, Deadlines(compile=4, memory_bytes=768 << 20), tmp_path_factory.mktemp("state")) as pool:
        yield pool


def test_each_failure_costs_one_candidate(pool):
    faults = ["none", "compile_error", "compile_abort", "compile_hang", "none"]
    results = [each.result() for each in [pool.submit(task(), candidate(fault)) for fault in faults]]
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


def test_a_compiler_that_eats_memory_costs_one_candidate_and_not_the_machine(pool):
    eats, after = (pool.submit(task(), candidate(fault, delay_us=10)) for fault in ("compile_oom", "none"))
    result = eats.result()
    assert result.outcome is Outcome.OUT_OF_RESOURCES
    assert re.fullmatch(
        r"out of memory while compiling: the process held \d\.\d GiB, the limit is 0\.8 GiB", result.reason
    )
    assert after.result().outcome is Outcome.OK


def test_a_full_disk_is_said_and_costs_no_candidate(pool):
    with pytest.raises(Unavailable, match="No space left on device") as caught:
        pool.submit(task(), candidate("compile_disk_full")).result()
    assert "ATTNCTL_CACHE_DIR" in caught.value.hint
    assert pool.submit(task(), candidate(delay_us=20)).result().outcome is Outcome.OK


def test_worker_that_somebody_else_killed_is_replaced(pool):
    hanging = pool.submit(task(), candidate("compile_hang", delay_us=1))
    while (compiler := next(iter(pool._running.values()), None)) is None or not compiler.worker.started:
        time.sleep(0.05)
    time.sleep(0.5)  # it compiles by then; if it does not, the result is the same
    os.kill(compiler.worker.pid, signal.SIGKILL)
    assert hanging.result().outcome is Outcome.TIMEOUT


def test_candidates_of_several_tasks_are_compiled_in_the_order_in_which_they_came(pool):
    tasks = (task(), task(seqlen_q=64, seqlen_k=64), task())
    submitted = [pool.submit(each, candidate(delay_us=number)) for number, each in enumerate(tasks)]
    assert submitted[2].result().outcome is Outcome.OK
    assert all(each.done() for each in submitted)


def test_pool_that_cannot_start_says_so(surroundings, tmp_path):
    with CompilePool(Hello(family="nobody", arch=None, device="cpu"), 2, Deadlines(), tmp_path) as pool:
        submitted = pool.submit(task(), candidate())
        with pytest.raises(Unavailable, match="there is no kernel family nobody"):
            submitted.result()


def test_what_is_cancelled_is_killed_and_what_comes_later_is_compiled(pool):
    hanging, queued = (pool.submit(task(), candidate(fault, delay_us=30)) for fault in ("compile_hang", "none"))
    while hanging not in {each.future for each in pool._running}:
        time.sleep(0.05)
    pool.cancel()
    assert queued.cancelled()
    with pytest.raises(CancelledError):
        hanging.result(20)
    again = pool.submit(task(), candidate(delay_us=30))
    assert again is not queued
    assert again.result().outcome is Outcome.OK


def test_what_is_asked_for_twice_is_compiled_once(pool):
    first, other, again = (pool.submit(task(), candidate(delay_us=each)) for each in (40, 41, 40))
    assert again is first is not other
    assert first.result().outcome is Outcome.OK
    assert pool.submit(task(), candidate(delay_us=40)) is first
    assert pool.submit(task(seqlen_q=64, seqlen_k=64), candidate(delay_us=40)) is not first
