"""A package that fa4 lacks reaches the user as the extra that brings it, as for every family."""

import pytest

pytest.importorskip("torch")

from attnctl.errors import MissingExtra
from attnctl.gpu.client import Worker
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello
from attnctl_kernels.fa4 import launch
from attnctl_kernels.fa4.launch import entry


def test_available_raises_for_a_missing_package(monkeypatch):
    monkeypatch.setattr(entry, "MODULES", {"package_that_nobody_has": "package-that-nobody-has"})
    with pytest.raises(ModuleNotFoundError) as caught:
        launch.LAUNCHER.available("sm_90")
    assert caught.value.name == "package-that-nobody-has"


@pytest.mark.skipif(not launch.missing_packages(), reason="flash-attn-4 is installed")
def test_a_worker_names_the_extra(tmp_path):
    hello = Hello(family="fa4", arch="sm_90", device="cuda:0")
    with Worker(hello, Deadlines(), tmp_path / "log") as worker, pytest.raises(MissingExtra) as caught:
        worker.start()
    assert caught.value.hint == "pip install 'attnctl[fa4]'"
