"""What the executors have in common: the next device leads where the first is lost, and extras are named."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from sweeps import profile

from attnctl.cli.app import load, run
from attnctl.errors import Unavailable
from attnctl.gpu.lane import Lane, Lanes


class Device:
    """Does what it is asked, or is lost."""

    def __init__(self, name, *, lost=False):
        self.name, self.lost, self.closed = name, lost, False

    def finals(self):
        if self.lost:
            raise Unavailable(f"{self.name} was lost")
        return self.name

    def interrupt(self):
        pass

    def close(self):
        self.closed = True


def lanes_of(*devices):
    return Lanes([Lane(lambda device=device: device) for device in devices])


def test_where_the_first_is_lost_the_next_leads():
    first, second = Device("first", lost=True), Device("second")
    with lanes_of(first, second) as lanes:
        assert lanes.on_lead(lambda device: device.finals()) == "second"
        assert lanes.lead is second
        assert first.closed


def test_where_the_last_is_lost_that_is_said():
    with lanes_of(Device("only", lost=True)) as lanes, pytest.raises(Unavailable, match="only was lost"):
        lanes.on_lead(lambda device: device.finals())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_without_ray_the_extra_is_named(tmp_path, capsys):
    assert run(["tune", str(profile(tmp_path)), "--executor", "ray"]) == 4
    assert "pip install 'attnctl[ray]'" in capsys.readouterr().err


def test_ray_brings_its_own_devices(tmp_path, capsys):
    assert run(["tune", str(profile(tmp_path)), "--executor", "ray", "--device", "0"]) == 2
    assert "leave --replay and --device out" in capsys.readouterr().err


def test_the_slurm_script_is_one():
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    (script,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    (line,) = [line for line in script.splitlines() if line.startswith("attnctl ")]
    _, name, *args = shlex.split(line)
    load(name).make_context(name, args)
