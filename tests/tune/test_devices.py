"""Several devices of one model share one sweep. This machine's CPU stands for all of them, with real processes."""

import os
import signal

import pytest
from sweeps import BLOCKS, ENVIRONMENT, Told, Tool, journals, profile, tuning, workers

from attnctl.cli.app import run
from attnctl.cli.options import device_names
from attnctl.errors import Unavailable, UsageError
from attnctl.gpu.lane import Lane, Lanes
from attnctl.tune.journal import read
from attnctl.tune.outcome import Status
from attnctl.worker.devices.torch_cpu import COUNT_VARIABLE
from attnctl_kernels.contract import Outcome

FAULTY = """\
schema: 1
family: faulty
problem: {batch_size: 1, seq_len: 64, num_heads_q: 2, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config: {fault: none, delay_us: 20000}
search: {fault: [none, abort, nan_fast], delay_us: [1000, 9000]}
"""


@pytest.fixture
def two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COUNT_VARIABLE, "2")
    return tmp_path


def devices(recorded):
    return {each.device for each in recorded.outcomes.values()}


def test_two_devices_share_the_candidates_and_one_that_dies_costs_one(two):
    """Each abort takes a worker with it, on either device; the journal says who measured what."""
    it = tuning(profile(two, FAULTY), device="all", jobs=1)
    it.run()
    (result,) = it.results
    assert result.status is Status.WON
    assert result.costs.devices == 2
    (path,) = journals(two)
    recorded = read(path)
    assert {"cpu:0", "cpu:1"} <= devices(recorded)
    assert recorded.header.environment.device == "cpu:0"
    by_fault = {}
    for each in recorded.outcomes.values():
        by_fault.setdefault(each.candidate.config["fault"], set()).add(each.result.outcome)
    assert by_fault == {
        "none": {Outcome.OK},
        "abort": {Outcome.WORKER_DIED},
        "nan_fast": {Outcome.WRONG_RESULT},
    }
    assert not [pid for pid, words in workers() if str(os.getpid()).encode() in words]


class KillsAll(Told):
    """Kills every measuring process once, between two candidates."""

    def outcome(self, candidate, result, note=""):
        super().outcome(candidate, result, note)
        if len(self.outcomes) == 2:
            for pid, words in workers():
                if str(os.getpid()).encode() in words and b"--background" not in words:
                    os.kill(pid, signal.SIGKILL)


def test_processes_that_somebody_kills_are_replaced_on_both(two):
    told = KillsAll()
    it = tuning(profile(two), told, device="cpu:0,cpu:1")
    it.run()
    (result,) = it.results
    assert {each.result.outcome for each in result.outcomes} == {Outcome.OK}
    assert result.winner


def test_the_command_names_devices(two):
    profile(two, BLOCKS)
    code, out, err = Tool(two, "tune", "p.yaml", "--device", "cpu:0,cpu:7").finish()
    assert code == 4
    assert "there is no cpu:7" in err
    assert "Traceback" not in err + out


@pytest.mark.parametrize(
    ("text", "names"), [("0,1", "cuda:0,cuda:1"), ("cpu:0, cpu:1", "cpu:0,cpu:1"), ("all", "all"), (None, None)]
)
def test_devices_are_listed_with_commas(text, names):
    assert device_names(text) == names


@pytest.mark.parametrize("text", ["0,0", "0,cuda:0", "0,", "gpu", "all,0"])
def test_other_lists_are_refused(text, capsys):
    with pytest.raises(UsageError, match="--device"):
        device_names(text)
    assert run(["tune", "p.yaml", "--device", text]) == 2
    assert "--device" in capsys.readouterr().err


class Opened:
    """A device that is open."""

    def __init__(self, device, **facts):
        self.environment = ENVIRONMENT.model_copy(update={"device": device, **facts})

    def interrupt(self):
        pass

    close = interrupt


def test_models_are_never_mixed():
    slice_ = {"num_sms": 66}
    lanes = Lanes(
        [Lane(lambda each=each: each) for each in (Opened("cuda:0"), Opened("cuda:1"), Opened("cuda:2", **slice_))]
    )
    with lanes, pytest.raises(UsageError) as caught:
        lanes.lock()
    assert "nvidia_h200 (cuda:0,cuda:1) and nvidia_h200 (cuda:2)" in caught.value.message
    assert caught.value.hint == "tune them apart, --device 0,1 then --device 2"


def test_a_device_that_cannot_be_opened_is_said_before_anything_is_locked():
    def broken():
        raise Unavailable("no CUDA device is visible")

    lanes = Lanes([Lane(lambda: Opened("cuda:0")), Lane(broken)])
    with lanes, pytest.raises(Unavailable, match="no CUDA device is visible"):
        lanes.lock()
