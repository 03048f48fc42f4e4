"""Workers that are forked from a process which has imported their framework."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from processes import gone
from worker_tasks import HELLO, candidate, task

from attnctl.gpu.client import Worker
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import Contender
from attnctl.gpu.template import FORK_VARIABLE
from attnctl_kernels.contract import Outcome


@pytest.fixture
def place(surroundings, tmp_path):
    with WorkerPlace(tmp_path, "test") as place:
        place.prefer_forks(HELLO, Deadlines())
        yield place


def started(place):
    worker = place.worker(HELLO, Deadlines())
    worker.start()
    return worker


def is_fork(worker):
    return b"--forks" in Path(f"/proc/{worker.pid}/cmdline").read_bytes()


def zombies():
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return [each for each in stats if each[0] == "Z" and int(each[1]) == os.getpid()]


def test_forks_are_children_of_the_tool_in_groups_of_their_own(place):
    with started(place) as first, started(place) as second:
        assert is_fork(first)
        assert is_fork(second)
        for worker in (first, second):
            assert Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
            assert os.getpgid(worker.pid) == worker.pid
    assert gone(first.pid or 0) or first.pid is None


def test_a_fork_is_fresh(surroundings, tmp_path):
    """What one process of the finals has done, the next one has not: its buffers, its count of runs."""
    with Measurer(HELLO, Deadlines(first_call=4), tmp_path, warm=2) as measurer:
        measurer.prepare(task())
        assert measurer.measure(candidate("leaks")).outcome is Outcome.LAUNCH_ERROR
        pids = {each.pid for each in measurer._reserve.workers} | {measurer.worker_pid}
        assert len(pids) == 3
        reply = measurer.finals([Contender(name="only", candidate=candidate())], 2)
    assert (len(reply.cycles), reply.failed) == (2, {})


def test_where_the_template_dies_workers_are_started_one_by_one(place):
    os.killpg(place._template._popen.pid, signal.SIGKILL)
    with started(place) as worker:
        assert not is_fork(worker)


def test_a_second_thread_in_the_template_forbids_forking(surroundings, tmp_path, monkeypatch):
    monkeypatch.setenv("FAULTY_THREAD", "1")
    with WorkerPlace(tmp_path, "test") as place:
        place.prefer_forks(HELLO, Deadlines())
        with started(place) as worker:
            assert not is_fork(worker)


def test_forking_can_be_switched_off(surroundings, tmp_path, monkeypatch):
    monkeypatch.setenv(FORK_VARIABLE, "0")
    with WorkerPlace(tmp_path, "test") as place:
        place.prefer_forks(HELLO, Deadlines())
        with started(place) as worker:
            assert not is_fork(worker)


def test_who_waits_for_a_template_that_is_closed_gets_no_worker(place):
    os.kill(place._template._popen.pid, signal.SIGSTOP)  # it will never answer
    lost = []

    def spawn():
        try:
            place.worker(HELLO, Deadlines()).spawn()
        except WorkerLost as error:
            lost.append(error)

    thread = threading.Thread(target=spawn)
    thread.start()
    time.sleep(0.2)
    place.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [each.reason for each in lost] == ["its template was closed"]


def test_what_a_worker_leaves_behind_is_adopted_and_does_not_pile_up(surroundings, tmp_path):
    before = len(zombies())
    with Measurer(HELLO, Deadlines(first_call=1), tmp_path) as measurer:
        measurer.prepare(task())
        assert measurer.measure(candidate("hang")).outcome is Outcome.TIMEOUT  # it has a child
    end = time.monotonic() + 5
    while len(zombies()) > before and time.monotonic() < end:
        time.sleep(0.05)
    assert len(zombies()) <= before


def test_a_worker_without_a_template_is_a_process_of_its_own(surroundings, tmp_path):
    with Worker(HELLO, Deadlines(), tmp_path / "log") as worker:
        worker.start()
        assert not is_fork(worker)
