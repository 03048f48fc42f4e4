"""Processes: who dies with whom, and what the tool makes of it."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from processes import gone
from worker_tasks import HELLO, candidate, task

from attnctl.errors import MissingExtra, Unavailable
from attnctl.gpu.client import Worker
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lock import LOCK_FOLDER_VARIABLE, DeviceLock
from attnctl.gpu.lost import WorkerLost
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.process import WorkerProcess
from attnctl.gpu.protocol import Bye, Contender, Hello, Measure, Prepare, Ready
from attnctl.worker.session import Session
from attnctl_kernels.contract import Mask, Outcome
from attnctl_kernels.families import get_family

SMALL = task(seqlen_q=32, seqlen_k=32)


def spawned(tmp_path):
    return WorkerProcess(("--family", "nobody"), tmp_path / "log", {})


def test_worker_killed_while_idle_costs_nothing(measurer):
    measurer.prepare(SMALL)
    pid = measurer.worker_pid
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert measurer.measure(candidate()).outcome is Outcome.OK
    assert measurer.worker_pid != pid


def kills(measurer, phase_name, times):
    """Kill the worker in this phase of a request, as somebody else might."""
    left = [None] * times

    def on_phase(phase):
        if phase.name == phase_name and left:
            left.pop()
            (worker,) = children() - before
            os.kill(worker, signal.SIGKILL)

    before = children() - ({measurer.worker_pid} if phase_name == "timing" else set())
    measurer.on_phase = on_phase


def children():
    """Worker processes of this process that still run."""
    pids = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                pids.add(int(path.parent.name))
    return pids


def test_worker_killed_at_work_costs_nothing(measurer):
    measurer.prepare(SMALL)
    kills(measurer, "timing", 1)
    assert measurer.measure(candidate(delay_us=20_000)).outcome is Outcome.OK


def test_worker_killed_at_work_twice_costs_one_candidate(measurer):
    measurer.prepare(SMALL)
    kills(measurer, "timing", 2)
    result = measurer.measure(candidate(delay_us=20_000))
    assert (result.outcome, result.reason) == (Outcome.WORKER_DIED, "killed by SIGKILL")
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_worker_killed_in_the_finals_costs_no_contender(measurer):
    measurer.prepare(SMALL)
    kills(measurer, "check", 1)
    contenders = [Contender(name=name, candidate=candidate()) for name in ("incumbent", "again")]
    reply = measurer.finals(contenders, 2)
    assert (len(reply.cycles), reply.failed) == (2, {})


def test_worker_killed_while_it_starts_is_replaced(measurer, monkeypatch):
    measurer.prepare(SMALL)
    start = Worker.start

    def killed(worker):
        monkeypatch.setattr(Worker, "start", start)
        worker.spawn()
        os.kill(worker.pid, signal.SIGKILL)
        return start(worker)

    monkeypatch.setattr(Worker, "start", killed)
    reply = measurer.finals([Contender(name="only", candidate=candidate())], 2)
    assert (len(reply.cycles), reply.failed) == (2, {})


def test_worker_dies_with_the_tool(tmp_path):
    """Killed outright, with a kernel that never returns in flight."""
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from attnctl.gpu.measurer import Measurer
        from attnctl.gpu.deadlines import Deadlines
        from worker_tasks import HELLO, candidate, task

        def die(phase):
            if phase.name == "first_call":
                print(measurer.worker_pid, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        measurer = Measurer(HELLO, Deadlines(), Path(sys.argv[1]), on_phase=die)
        measurer.prepare(task(seqlen_q=32, seqlen_k=32))
        measurer.measure(candidate("hang"))
    """)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    tool = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path, LOCK_FOLDER_VARIABLE: str(tmp_path)},
    )
    assert tool.returncode == -signal.SIGKILL, tool.stderr
    assert gone(int(tool.stdout))


def test_worker_leaves_when_its_requests_end(tmp_path):
    process = spawned(tmp_path)
    process.close_requests()
    assert process.exit_reason(60) == "killed by SIGKILL"
    process.kill()


def test_worker_says_goodbye(tmp_path):
    process = spawned(tmp_path)
    process.send(Bye().model_dump_json().encode(), time.monotonic() + 10)
    assert process.exit_reason(60) == "exited with status 0"
    process.kill()


def test_deadline_while_starting(tmp_path):
    with Worker(HELLO, Deadlines(start=0.05), tmp_path / "log") as worker:
        with pytest.raises(WorkerLost, match=r"^deadline of 0\.05 s passed in start in start$") as caught:
            worker.start()
        assert caught.value.timed_out


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("raises_beside", Outcome.LAUNCH_ERROR, "an illegal memory access was encountered"),
        ("aborts_beside", Outcome.WORKER_DIED, "killed by SIGABRT"),
        ("wrong_beside", Outcome.WRONG_RESULT, "beside the other contenders: out: RMS error"),
        ("scribbles_beside", Outcome.WRONG_RESULT, "writes into memory that it was not given"),
    ],
)
def test_what_goes_wrong_only_beside_others_costs_one_contender(measurer, fault, outcome, reason):
    """It has passed every check by itself, and its launches are queued between those of others."""
    measurer.prepare(SMALL)
    assert measurer.measure(candidate(fault)).outcome is Outcome.OK
    named = {"incumbent": candidate(), "good": candidate(delay_us=1), "bad": candidate(fault), "again": candidate()}
    reply = measurer.finals([Contender(name=name, candidate=each) for name, each in named.items()], 4)
    assert {name: each.outcome for name, each in reply.failed.items()} == {"bad": outcome}
    assert reason in reply.failed["bad"].reason
    assert len(reply.cycles) == 4
    assert all({"incumbent", "good", "again"} <= set(cycle.samples_us) for cycle in reply.cycles)


def test_the_cycles_run_on_the_task_whatever_the_last_contender_has_left(measurer):
    """It fails on inputs of its own, strongly negative scores, which stay behind."""
    measurer.prepare(task(seqlen_q=254, seqlen_k=254, mask=Mask(), dtype="bfloat16"))
    faults = {"incumbent": "none", "again": "none", "tail": "tail_zero_weight"}
    reply = measurer.finals([Contender(name=name, candidate=candidate(fault)) for name, fault in faults.items()], 4)
    assert set(reply.failed) == {"tail"}
    assert "strongly negative scores" in reply.failed["tail"].reason
    assert len(reply.cycles) == 4


def test_an_incumbent_that_goes_wrong_beside_itself_is_the_one_to_blame(measurer):
    measurer.prepare(SMALL)
    named = {"incumbent": candidate("aborts_beside"), "good": candidate(), "again": candidate("aborts_beside")}
    reply = measurer.finals([Contender(name=name, candidate=each) for name, each in named.items()], 4)
    assert set(reply.failed) == {"incumbent", "again"}
    assert [set(cycle.samples_us) for cycle in reply.cycles] == [{"good"}] * 4


@pytest.mark.parametrize(
    ("hello", "error", "message"),
    [
        (Hello(family="nobody", arch=None, device="cpu"), Unavailable, "there is no kernel family nobody"),
        (Hello(family="faulty", arch=None, device="cuda:97"), Unavailable, "CUDA device"),
        (Hello(family="needy", arch=None, device="cpu"), MissingExtra, "package_that_nobody_has is not installed"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(surroundings, tmp_path, hello, error, message):
    with pytest.raises(error) as caught:
        Measurer(hello, Deadlines(), tmp_path)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    if error is MissingExtra:
        assert caught.value.hint == "pip install 'attnctl[needy]'"


def test_task_that_cannot_be_prepared(measurer):
    with pytest.raises(Unavailable, match="mask pattern sliding_window needs window"):
        measurer.prepare(task(mask=Mask(pattern="sliding_window")))
    measurer.prepare(SMALL)
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_a_full_disk_is_no_fault_of_a_candidate(measurer):
    """It would be a compile_error for good, and the next candidate too: the sweep ends, and can be resumed."""
    measurer.prepare(SMALL)
    with pytest.raises(Unavailable, match=r"^OSError: .*No space left on device") as caught:
        measurer.measure(candidate("bind_disk_full"))
    assert "ATTNCTL_CACHE_DIR" in caught.value.hint
    contenders = [Contender(name=fault, candidate=candidate(fault)) for fault in ("none", "bind_disk_full")]
    with pytest.raises(Unavailable, match="No space left on device"):
        measurer.finals(contenders, 2)
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_finals_in_a_fresh_process(measurer):
    """Those that fail there are named; the others go on, with the incumbent twice."""
    measurer.prepare(SMALL)
    measured_by = measurer.worker_pid
    measurer.warm_up(1)
    contenders = [
        Contender(name="incumbent", candidate=candidate()),
        Contender(name="again", candidate=candidate()),
        Contender(name="slow", candidate=candidate(delay_us=20_000)),
        Contender(name="wrong", candidate=candidate("nan_fast")),
        Contender(name="abort", candidate=candidate("abort")),
    ]
    reply = measurer.finals(contenders, 6)
    assert len(reply.cycles) == 6
    assert all(set(cycle.samples_us) == {"incumbent", "again", "slow"} for cycle in reply.cycles)
    assert all(cycle.samples_us["slow"] >= 20_000 for cycle in reply.cycles)
    first = [next(iter(cycle.samples_us)) for cycle in reply.cycles]
    assert sorted(first) == ["again"] * 2 + ["incumbent"] * 2 + ["slow"] * 2
    outcomes = {name: (str(each.outcome), each.reason.partition(":")[0]) for name, each in reply.failed.items()}
    assert outcomes == {"wrong": ("wrong_result", "out"), "abort": ("worker_died", "killed by SIGABRT")}
    assert measurer.worker_pid == measured_by


def test_failed_candidates_leave_nothing_alive(surroundings):
    """B43: what an exception held is gone after each failure, and results hold strings."""
    from attnctl_kernels.faulty.launch import leaked

    family = get_family("faulty")
    session = Session(family, family.launcher(), lambda phase, subject=None: None)
    assert isinstance(session.hello(HELLO), Ready)
    session.prepare(Prepare(task=SMALL))
    gc.disable()  # nobody but the worker's own code cleans up here
    try:
        for count in range(1, 21):
            result = session.measure(Measure(candidate=candidate("leaks")))
            assert result.outcome is Outcome.LAUNCH_ERROR
            assert len(leaked) == count
            assert leaked[-1]() is None
    finally:
        gc.enable()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize(
    ("hello", "reason", "hint"),
    [
        (("faulty", None, "cuda:1"), "no CUDA device is visible", "use cpu"),
        (("faulty", None, "cpu:3"), "there is no cpu:3", "use cpu"),
        (
            ("flex", "sm_90", "cuda:0"),
            "no CUDA device is visible",
            "flex needs a GPU: `attnctl doctor` shows what is here",
        ),
        (("flex", "sm_90", "cpu"), "flex runs on a GPU, not on cpu", "name a GPU, or no device"),
    ],
)
def test_a_device_that_is_not_there_comes_with_what_works(surroundings, hello, reason, hint):
    family, arch, device = hello
    found = get_family(family)
    session = Session(found, found.launcher(), lambda phase, subject=None: None)
    failed = session.hello(Hello(family=family, arch=arch, device=device))
    assert failed.reason.startswith(reason)
    assert failed.hint.startswith(hint)


def test_environment_of_the_cpu(measurer):
    environment = measurer.environment
    assert environment.device_name.startswith("cpu_")
    assert (environment.device, environment.arch, environment.threads) == ("cpu", None, 1)
    assert {"python", "torch", "faulty"} <= set(environment.versions)


def test_a_device_is_measured_by_one_tool_at_a_time(surroundings):
    holder = """
        from attnctl.gpu.lock import LOCK_FOLDER_VARIABLE, DeviceLock
        lock = DeviceLock("cpu x/y")
        lock.acquire(print)
        print("held", flush=True)
        input()
    """
    waited = []
    lock = DeviceLock("cpu x/y")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(holder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Unavailable, match=r"^cpu x/y was still in use by another attnctl after 0\.2 s$"):
            lock.acquire(waited.append, timeout_s=0.2)
        assert len(waited) == 1
        assert str(lock.path) in waited[0]
        other.communicate("\n")
    lock.acquire(waited.append)
    assert len(waited) == 1
    again = DeviceLock("cpu x/y")  # two families on one device, one tool
    again.acquire(waited.append)
    assert len(waited) == 1
    again.release()
    lock.release()


def test_lock_folder_that_cannot_be_used(surroundings, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(LOCK_FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(Unavailable, match="cannot lock cpu: ") as caught:
        DeviceLock("cpu").acquire(lambda message: None)
    assert LOCK_FOLDER_VARIABLE in caught.value.hint
