"""Short tasks are timed as one launch of several calls. The launch is a loop here: a CPU records nothing."""

import pytest
from worker_tasks import problem

from attnctl.gpu.protocol import Measure
from attnctl.worker.attempt import Attempt
from attnctl.worker.devices.torch_cpu import TorchCpu
from attnctl.worker.finals import run_cycle
from attnctl.worker.graphs import CALLS, Timed, is_short
from attnctl.worker.probes import Probes
from attnctl.worker.setup import Setup
from attnctl.worker.timing import screen
from attnctl_kernels.blocks.launch import BlocksLauncher
from attnctl_kernels.contract import Candidate, Mask, Outcome, Task
from attnctl_kernels.families import get_family

BLOCKS = get_family("blocks")
CANDIDATE = Candidate(config={"block_q": 64, "block_kv": 64})


def task(**changes):
    return Task(family="blocks", version=None, arch=None, pass_name="forward", problem=problem(**changes))


class Recording(TorchCpu):
    """Makes a launch of what it is given; ``refuses``: as a device that cannot."""

    refuses = False
    recorded = 0

    def capture(self, runs):
        self.recorded = len(runs)
        return None if self.refuses else lambda: [run() for run in runs] and None


class Captured(BlocksLauncher):
    captures = True


class SecondIsWrong(Captured):
    """Every call but the first gives something else. As if it were compiled: no probes are bound before."""

    compiles = True

    def __init__(self):
        self.bound = 0

    def bind(self, task, candidate, inputs):
        self.bound += 1
        call = super().bind(task, candidate, inputs)
        if self.bound > 1:
            run = call.run

            def wrong():
                run()
                call.outputs()["out"].add_(1)

            call.run = wrong
        return call


class Clock(Recording):
    """Everything takes 160 us."""

    def sample_us(self, runs, cache, between=None):
        return [160.0 for _ in runs]


def attempt(device, launcher, **changes):
    setup = Setup(task(**changes), device)
    return Attempt(BLOCKS, launcher, setup, Probes(BLOCKS, launcher, setup.task, device), lambda *_, **__: None)


def test_a_short_task_is_timed_as_one_launch_of_several_calls():
    device = Recording("cpu")
    result = attempt(device, Captured()).measure(Measure(candidate=CANDIDATE, max_samples=30))
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert (result.timing.graph_calls, device.recorded) == (CALLS, CALLS)
    alone = attempt(device, BlocksLauncher()).measure(Measure(candidate=CANDIDATE, max_samples=30))
    assert alone.timing.graph_calls == 0


def test_what_cannot_be_recorded_is_timed_call_by_call():
    device = Recording("cpu")
    device.refuses = True
    result = attempt(device, Captured()).measure(Measure(candidate=CANDIDATE, max_samples=30))
    assert (result.outcome, result.timing.graph_calls, device.recorded) == (Outcome.OK, 0, CALLS)


def test_every_call_of_the_graph_is_checked():
    result = attempt(Recording("cpu"), SecondIsWrong()).measure(Measure(candidate=CANDIDATE, max_samples=30))
    assert result.outcome is Outcome.WRONG_RESULT
    assert "a call of the timed graph" in result.reason


def test_times_are_of_one_call():
    found = attempt(Recording("cpu"), Captured()).qualify(CANDIDATE, "a")
    assert isinstance(found, Timed)
    assert (found.calls, len(found.held)) == (CALLS, CALLS)

    cycle = run_cycle(Clock("cpu"), {"a": found, "b": Timed(lambda: None)}, [1, 0], "cold", None)
    assert cycle.samples_us == {"a": 160.0 / CALLS, "b": 160.0}
    timing = screen(Clock("cpu"), found.run, "cold", calls=found.calls, max_samples=40)
    assert (timing.median_us, timing.graph_calls, timing.count) == (160.0 / CALLS, CALLS, 40)


@pytest.mark.parametrize(
    ("changes", "short"),
    [
        ({}, True),
        ({"seqlen_q": 8192, "seqlen_k": 8192, "num_heads_q": 16, "head_dim": 128, "head_dim_v": 128}, False),
        ({"seqlen_q": 16, "seqlen_k": 65536, "mask": Mask(), "head_dim": 128, "head_dim_v": 128}, False),  # bytes
        ({"seqlen_q": 2048, "seqlen_k": 2048, "num_heads_q": 16, "mask": Mask()}, False),  # operations
    ],
)
def test_the_task_alone_says_whether_it_is_short(changes, short):
    assert is_short(task(**changes)) is short
