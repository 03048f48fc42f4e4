"""Several ranks, one decision, though the tuned profile changes while they ask."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tuned_profiles import store_tuned, tile, write

from attnctl.profile import job

RANK = Path(__file__).with_name("rank.py")
ROOT = Path(__file__).parents[2]
TORCHRUN = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}


def start(path, gate, rank=0, **variables):
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "RANK": str(rank),
        **variables,
    }
    command = [sys.executable, str(RANK), str(path), "1024", str(gate)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def said(rank):
    out, _ = rank.communicate(timeout=60)
    assert rank.returncode == 0
    return out


def ranks_around_a_change(path, tmp_path, count=2, **variables):
    """What ranks print: the first asks, then the tuned profile gets another winner, then the others ask."""
    gate = tmp_path / "gate"
    store_tuned(path, 1024, tile(64, 64))
    others = [start(path, gate, rank, **variables) for rank in range(1, count)]
    first = said(start(path, "-", 0, **variables))
    store_tuned(path, 1024, tile(128, 64))
    gate.touch()
    return [first, *map(said, others)]


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "work")


@pytest.mark.parametrize(
    "variables",
    [
        TORCHRUN,
        {"WORLD_SIZE": "4", "ATTNCTL_JOB_ID": "a-job"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
    ],
    ids=["torchrun", "named", "slurm"],
)
def test_all_ranks_get_what_the_first_got(path, tmp_path, variables):
    printed = ranks_around_a_change(path, tmp_path, 4, **variables)
    assert printed == [f"{ {**tile(64, 64), 'sparse_block': (64, 64)} } []\n"] * 4


@pytest.mark.parametrize(
    "variables",
    [
        {**TORCHRUN, "ATTNCTL_JOB_DIR": "off"},
        {"WORLD_SIZE": "4"},
        {**TORCHRUN, "ATTNCTL_JOB_DIR": "/proc/no-folder"},
    ],
    ids=["off", "no name", "no folder"],
)
def test_ranks_that_cannot_share_say_that_they_may_differ(path, tmp_path, variables):
    printed = ranks_around_a_change(path, tmp_path, **variables)
    assert len(set(printed)) == 2
    assert all("['RanksMayDiffer']" in each for each in printed)


def test_ranks_that_ask_at_once_agree(path, tmp_path):
    for attempt in range(2):
        store_tuned(path, 1024, tile(64, 64))
        gate = tmp_path / f"gate{attempt}"
        variables = {"WORLD_SIZE": "4", "ATTNCTL_JOB_ID": f"job-{attempt}"}
        ranks = [start(path, gate, rank, **variables) for rank in range(4)]
        gate.touch()
        store_tuned(path, 1024, tile(128, 64))
        assert len({said(each) for each in ranks}) == 1
    folders = list((tmp_path / "home-cache" / "attnctl" / "jobs").iterdir())
    assert [len(list(each.iterdir())) for each in folders] == [1, 1]


def test_another_job_decides_for_itself(path, tmp_path):
    first = ranks_around_a_change(path, tmp_path, WORLD_SIZE="4", ATTNCTL_JOB_ID="first")
    second = said(start(path, "-", 0, WORLD_SIZE="4", ATTNCTL_JOB_ID="second"))
    assert "'block_q': 64" in first[0]
    assert "'block_q': 128" in second


def test_only_the_rank_that_decides_warns(path, tmp_path):
    printed = [said(start(path, "-", rank, **TORCHRUN)) for rank in range(2)]
    assert [each.rpartition("}")[2].strip() for each in printed] == ["['NotTuned']", "[]"]


def test_the_ranks_of_a_real_torchrun(path, tmp_path):
    pytest.importorskip("torch")
    store_tuned(path, 1024, tile(64, 64))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "4",
        str(RANK),
        str(path),
        "1024",
        "-",
    ]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines == [f"{ {**tile(64, 64), 'sparse_block': (64, 64)} } []"] * 4, done.stderr
    assert len(list((tmp_path / "home-cache" / "attnctl" / "jobs").iterdir())) == 1


IDS = {
    "a name": ({"ATTNCTL_JOB_ID": "x", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "x"),
    "a step": ({"SLURM_CLUSTER_NAME": "c", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "slurm-c-7-0-"),
    "torchrun in a step": (
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "TORCHELASTIC_RUN_ID": "r", "MASTER_PORT": "5"},
        "slurm--7-0--r--5-",
    ),
    "torchrun with an id": (
        {"TORCHELASTIC_RUN_ID": "r", "MASTER_ADDR": "n", "MASTER_PORT": "5", "TORCHELASTIC_RESTART_COUNT": "1"},
        "torchelastic-r-n-5-1",
    ),
    "mpi": ({"PMIX_NAMESPACE": "prterun-node-1@1"}, "pmix-prterun-node-1@1"),
}


@pytest.mark.parametrize("launcher", IDS)
def test_what_names_a_job(launcher):
    environ, wanted = IDS[launcher]
    assert job.job_id(environ) == wanted


def test_a_batch_job_is_no_name_for_what_runs_in_it():
    with pytest.raises(job.NotShared, match="set ATTNCTL_JOB_ID"):
        job.job_id({"SLURM_JOB_ID": "7", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"})


@pytest.mark.parametrize(
    ("environ", "several"),
    [({}, False), ({"WORLD_SIZE": "1"}, False), ({"WORLD_SIZE": "x"}, False), ({"OMPI_COMM_WORLD_SIZE": "2"}, True)],
)
def test_whether_several_ranks_run(environ, several):
    assert job.several_ranks(environ) is several
