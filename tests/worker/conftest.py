"""Real worker processes. Most tests share one per module: starting a process costs more than anything it does here."""

from pathlib import Path

import pytest
from hypothesis import settings
from worker_tasks import HELLO

import attnctl_kernels
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lock import LOCK_FOLDER_VARIABLE
from attnctl.gpu.measurer import Measurer

FAMILIES = Path(__file__).parents[1] / "families"

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """Workers and this process find the faulty family; locks are the module's own; one thread, so that nobody spins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_FAMILY_PATH", str(FAMILIES))
        patch.setattr(attnctl_kernels, "__path__", [*attnctl_kernels.__path__, str(FAMILIES)])
        patch.setenv(LOCK_FOLDER_VARIABLE, str(tmp_path_factory.mktemp("locks")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield patch


@pytest.fixture(scope="module")
def measurer(surroundings, tmp_path_factory):
    deadlines = Deadlines(first_call=4, memory_bytes=768 << 20)
    with Measurer(HELLO, deadlines, tmp_path_factory.mktemp("state")) as measurer:
        yield measurer
