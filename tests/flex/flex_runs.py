"""Problems and candidates of FlexAttention, and a process of its own to compile them in."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attention_problems
from attention_problems import CAUSAL, MASKS  # noqa: F401 - for the tests of this family

from attnctl_kernels.contract import Candidate, Task
from attnctl_kernels.families import get_family

FAMILY = get_family("flex")


def make_problem(seqlen_q=500, seqlen_k=None, *, head_dim=64, batch_size=2, **more):
    """Small enough to be compiled by the dozen."""
    return attention_problems.make_problem(seqlen_q, seqlen_k, head_dim=head_dim, batch_size=batch_size, **more)


def make_work(problem, pass_name="forward", *, arch="sm_90", block=None, **config):
    """Task and candidate; what ``config`` leaves out is inductor's choice."""
    task = Task(family="flex", version="2.13", arch=arch, pass_name=pass_name, problem=problem)
    complete = {**FAMILY.default_config(problem, pass_name, arch, block), **config}
    return task, Candidate(config=complete, sparse_block=block or FAMILY.sparse_block(problem, pass_name, complete))


def compiled(work, cache, processes=1):
    """What ``flex_process.py`` says about each (task, candidate), from processes that see no GPU."""
    parts = [work[first::processes] for first in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(lambda part: _in_a_process("flex_process.py", part, cache), parts))
    return [results[index % processes][index // processes] for index in range(len(work))]


def measured(work, cache):
    """What ``flex_measuring.py`` says about each (task, candidate), in one process."""
    return _in_a_process("flex_measuring.py", work, cache)


def _in_a_process(program, work, cache):
    text = json.dumps([[task.model_dump(mode="json"), candidate.model_dump(mode="json")] for task, candidate in work])
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "ATTNCTL_CACHE_DIR": str(cache)}
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program))],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={**os.environ, **environment, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout.splitlines()[-1])
