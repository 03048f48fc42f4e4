"""The kernel compiles without a GPU, takes what the model says, and is found on disk the second time."""

import json
import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from attnctl_kernels.contract import Mask, Problem
from attnctl_kernels.ranker import config as own

pytest.importorskip("cutlass")
MACHINE_CUDA = 190
TRITON = util.find_spec("triton")
NVDISASM = Path(TRITON.origin if TRITON else "").parent / "backends/nvidia/bin/nvdisasm"

PROBLEM = Problem(
    batch_size=2,
    seqlen_q=1000,
    seqlen_k=1000,
    num_heads_q=4,
    num_heads_kv=2,
    head_dim=64,
    head_dim_v=64,
    dtype="bfloat16",
    mask=Mask(pattern="history_candidate", history_len=700),
)
CONFIG = own.default_config(64) | {"tile_m": 64, "tile_n": 64, "stages": 2}
CAUSAL = PROBLEM.model_copy(update={"mask": Mask(pattern="causal"), "head_dim": 96, "head_dim_v": 96, "seqlen_q": 99})
IN_ORDER = own.default_config(96, ranges=True) | {"tile_n": 96, "schedule": "longest_first", "balanced": True}
LARGER = PROBLEM.model_copy(update={"head_dim": 128, "head_dim_v": 128})
IN_PIECES = own.default_config(128) | {"schedule": "longest_first", "balanced": True}
COMPILE = """
import json, sys
from attnctl_kernels.contract import Candidate, Problem, Task
from attnctl_kernels.ranker.launch import LAUNCHER

problem = Problem.model_validate_json(sys.argv[1])
task = Task(family="ranker", version=None, arch="sm_90", pass_name=sys.argv[3], problem=problem)
print(LAUNCHER.compile(task, Candidate(config=json.loads(sys.argv[2]))).model_dump_json())
"""


def compiled(problem, config, cache, pass_name="forward"):
    command = [sys.executable, "-c", COMPILE, problem.model_dump_json(), json.dumps(config), pass_name]
    environment = {"ATTNCTL_CACHE_DIR": str(cache), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(cache):
    return compiled(PROBLEM, CONFIG, cache)


def test_it_takes_the_shared_memory_of_the_model_and_spills_nothing(first):
    assert first["resources"]["smem_bytes"] == own.smem_bytes(PROBLEM.head_dim, CONFIG)
    assert first["resources"]["local_bytes"] == 0
    assert not first["cached"]


def disassembled(cache):
    """The device code in the newest object file there."""
    path = max((cache / "ranker").glob("*.o"), key=lambda each: each.stat().st_mtime)
    data = path.read_bytes()
    starts = [found.start() for found in re.finditer(b"\x7fELF", data)]
    (start,) = (each for each in starts if int.from_bytes(data[each + 18 : each + 20], "little") == MACHINE_CUDA)
    (cache / "kernel.cubin").write_bytes(data[start:])
    command = [NVDISASM, "-c", cache / "kernel.cubin"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not NVDISASM.is_file(), reason="the triton wheel brings nvdisasm")
def test_the_compiler_leaves_the_products_in_flight(first, cache):
    """Where it cannot follow them across branches, it waits behind each wgmma: 1.6 times the time, and no error."""
    code = disassembled(cache)
    assert code.count("HGMMA") > 2 * code.count("WARPGROUP.DEPBAR")


@pytest.mark.skipif(not NVDISASM.is_file(), reason="the triton wheel brings nvdisasm")
@pytest.mark.parametrize(("problem", "config"), [(CAUSAL, IN_ORDER), (LARGER, IN_PIECES)], ids=["ranges", "bounds"])
def test_masks_orders_and_groups_without_rows_leave_them_in_flight_as_well(problem, config, cache):
    other = compiled(problem, config, cache)
    assert other["resources"]["local_bytes"] == 0
    code = disassembled(cache)
    assert code.count("HGMMA") > 2 * code.count("WARPGROUP.DEPBAR")


def test_other_lengths_and_heads_find_the_same_kernel_on_disk(first, cache):
    other = PROBLEM.model_copy(update={"seqlen_q": 333, "seqlen_k": 333, "num_heads_q": 2, "dtype": "bfloat16"})
    again = compiled(other, CONFIG, cache)
    assert again["cached"]
    assert again["binary"] == first["binary"]
