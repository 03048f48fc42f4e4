import os
from pathlib import Path

import pytest
from hypothesis import settings

import attnctl_kernels
from attnctl.gpu.lock import LOCK_FOLDER_VARIABLE
from attnctl.state import STATE_DIR_VARIABLE

FAMILIES = Path(__file__).parents[1] / "families"

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """The faulty family is found; locks are the module's own; one core, so that no kernel waits for another thread."""
    cores = sorted(os.sched_getaffinity(0))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_FAMILY_PATH", str(FAMILIES))
        patch.setattr(attnctl_kernels, "__path__", [*attnctl_kernels.__path__, str(FAMILIES)])
        patch.setenv(LOCK_FOLDER_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        patch.delenv(STATE_DIR_VARIABLE, raising=False)
        os.sched_setaffinity(0, {cores[number % len(cores)]})
        yield patch
        os.sched_setaffinity(0, cores)
