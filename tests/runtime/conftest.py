"""A process that has asked nothing yet, and no settings of the machine that tests run on."""

import pytest

from attnctl.profile import runtime

LAUNCHERS = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    for name in (*LAUNCHERS, "ATTNCTL_CONFIG_DIR", "ATTNCTL_JOB_DIR", "ATTNCTL_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home-config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home-cache"))
    runtime.forget()
