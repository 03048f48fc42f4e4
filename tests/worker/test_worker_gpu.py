"""What only a GPU can show: sticky errors, events, clocks, device memory."""

from pathlib import Path

import pytest
from worker_tasks import BLOCKS, candidate, task

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Hello, Measure, Prepare, Ready
from attnctl_kernels.contract import Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a CUDA device"),
]
HELLO = Hello(family="faulty", arch=None, device="cuda:0")
TASK = task(dtype="bfloat16", mask=BLOCKS, head_dim=64, head_dim_v=64)


@pytest.fixture(scope="module")
def measurer(surroundings, tmp_path_factory):
    with Measurer(HELLO, Deadlines(), tmp_path_factory.mktemp("state")) as measurer:
        measurer.prepare(TASK)
        yield measurer


def test_environment_of_the_gpu(measurer):
    environment = measurer.environment
    assert environment.device_name.startswith("nvidia_")
    assert environment.arch.startswith("sm_")
    assert environment.uuid.startswith("GPU-")
    assert min(environment.num_sms, environment.l2_bytes, environment.memory_bytes) > 0


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_right_candidate_is_timed(measurer, pass_name, cache):
    measurer.prepare(TASK.model_copy(update={"pass_name": pass_name}), cache)
    result = measurer.measure(candidate(sparse_block=(64, 64)), probes=True, second_seed=True)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.timing.cache == cache
    assert result.timing.count >= 30
    assert result.timing.min_us > 0


@pytest.mark.parametrize(
    "fault", ["nan_fast", "ignores_sparsity", "reads_unseen", "writes_inputs", "flaky", "wrong_row"]
)
def test_wrong_result_is_found(measurer, fault):
    measurer.prepare(TASK)
    result = measurer.measure(candidate(fault, sparse_block=(64, 64)))
    assert result.outcome is Outcome.WRONG_RESULT, result.reason


def test_sticky_error_costs_one_candidate(measurer):
    measurer.prepare(TASK)
    pid = measurer.worker_pid
    result = measurer.measure(candidate("device_assert"))
    assert (result.outcome, result.poisoned) == (Outcome.LAUNCH_ERROR, True)
    assert measurer.measure(candidate()).outcome is Outcome.OK
    assert measurer.worker_pid != pid


def test_a_kernel_that_does_not_end_is_killed_with_its_process(measurer, monkeypatch):
    measurer.prepare(TASK)
    monkeypatch.setattr(measurer, "_deadlines", Deadlines(first_call=3))
    measurer._worker._deadlines = measurer._deadlines
    result = measurer.measure(candidate("device_hang"))
    assert (result.outcome, result.reason) == (Outcome.TIMEOUT, "deadline of 3 s passed in first_call")
    assert measurer.measure(candidate()).outcome is Outcome.OK


def test_sticky_error_in_the_finals_costs_one_contender(measurer):
    measurer.prepare(TASK)
    faults = {"incumbent": "none", "again": "none", "bad": "device_assert"}
    reply = measurer.finals([Contender(name=name, candidate=candidate(fault)) for name, fault in faults.items()], 8)
    assert set(reply.failed) == {"bad"}
    assert len(reply.cycles) == 8
    assert all(set(cycle.samples_us) == {"incumbent", "again"} for cycle in reply.cycles)


def test_failed_candidates_return_device_memory(surroundings):
    import torch

    from attnctl.worker.session import Session
    from attnctl_kernels.families import get_family

    family = get_family("faulty")
    session = Session(family, family.launcher(), lambda phase, subject=None: None)
    assert isinstance(session.hello(HELLO), Ready)
    session.prepare(Prepare(task=TASK))
    session.measure(Measure(candidate=candidate("leaks")))
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        assert session.measure(Measure(candidate=candidate("leaks"))).outcome is Outcome.LAUNCH_ERROR
    assert torch.cuda.memory_allocated() == pytest.approx(before, rel=0.01)
