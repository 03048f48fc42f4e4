"""Problems and candidates of FlexAttention, and a process of its own to compile them in."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attnctl_kernels.contract import Candidate, Mask, Problem, Task
from attnctl_kernels.families import get_family

FAMILY = get_family("flex")
CAUSAL = Mask(pattern="causal")

# One of each, for sequences of 500 tokens.
MASKS = {
    "dense": Mask(),
    "causal": CAUSAL,
    "window": Mask(pattern="sliding_window", window=100),
    "prefix": Mask(pattern="prefix_lm", prefix_len=77),
    "history": Mask(pattern="history_candidate", history_len=300),
    "documents": Mask(pattern="document", document_len=130),
    "ragged documents": Mask(pattern="document", document_lens=(60, 1, 239, 200)),
    "causal ragged documents": Mask(pattern="document", document_lens=(60, 1, 239, 200), causal=True),
    "blocks": Mask(pattern="blocks", block_size=(100, 50), rows=((0, 3), (), (9,), (1, 2, 3, 4), (0, 9))),
}


def make_problem(seqlen_q=500, seqlen_k=None, *, heads=4, heads_kv=None, head_dim=64, head_dim_v=None, **more):
    return Problem(
        batch_size=more.pop("batch_size", 2),
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k or seqlen_q,
        num_heads_q=heads,
        num_heads_kv=heads_kv or heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v or head_dim,
        dtype=more.pop("dtype", "bfloat16"),
        **{"mask": CAUSAL, **more},
    )


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
