"""Problems, cases and upstream's own entry, for the tests of family fa4."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attention_problems import CAUSAL, MASKS, make_problem  # noqa: F401 - for the tests of this family

from attnctl_kernels.contract import Candidate, Case, Task
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.rule import Severity, check

THOROUGH = int(os.environ.get("ATTNCTL_EXAMPLES", "1"))  # times as many random examples


def make_case(problem, pass_name="forward", arch="sm_90", block=None, **config):
    """As the profile loader makes it: what is not given carries the kernel's default."""
    complete = {**FAMILY.default_config(problem, pass_name, arch, block), **config}
    sparse_block = block or FAMILY.sparse_block(problem, pass_name, complete)
    return Case(
        family="fa4",
        version=FAMILY.versions[-1],
        arch=arch,
        problem=problem,
        pass_name=pass_name,
        config=complete,
        sparse_block=sparse_block,
        given=frozenset(config) | ({"sparse_block"} if block else frozenset()),
        passes=(pass_name,),
        configs={pass_name: complete},
        sparse_blocks={pass_name: sparse_block},
    )


def codes(case, severity=None):
    return {rule.code for rule, _ in check(case, FAMILY.rules()) if severity in (None, rule.severity)}


def errors(case):
    return codes(case, Severity.ERROR)


def make_backward_work(problem, block=None, **config):
    """Task and candidate; the kernel's own config where ``config`` says nothing."""
    case = make_case(problem, "backward", block=block, **config)
    task = Task(family="fa4", version=None, arch="sm_90", pass_name="backward", problem=problem)
    return task, Candidate(config=case.config, sparse_block=case.sparse_block)


def make_work(problem, tile_m=128, tile_n=128, *, mma_pv_is_rs=True, intra_wg_overlap=True, **more):
    """Task and candidate."""
    config = {
        "tile_m": tile_m,
        "tile_n": tile_n,
        "mma_pv_is_rs": mma_pv_is_rs,
        "intra_wg_overlap": intra_wg_overlap,
        **more,
    }
    task = Task(family="fa4", version=None, arch="sm_90", pass_name="forward", problem=problem)
    return task, Candidate(config=config, sparse_block=FAMILY.sparse_block(problem, "forward", config))


def in_a_process(what, work, cache, **environment):
    """What ``fa4_process.py`` says about each (task, candidate)."""
    text = json.dumps([[task.model_dump(mode="json"), candidate.model_dump(mode="json")] for task, candidate in work])
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fa4_process.py")), what],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=570,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ATTNCTL_CACHE_DIR": str(cache), **environment},
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout)


def compile_ahead(work, cache):
    """On all cores, without the GPU."""
    processes = min(16, os.cpu_count() or 1, len(work))
    if not processes:
        return
    with ThreadPoolExecutor(processes) as pool:
        parts = [work[part::processes] for part in range(processes)]
        list(pool.map(lambda part: in_a_process("compile", part, cache, CUDA_VISIBLE_DEVICES=""), parts))


def objects(cache):
    """Compiled kernels on disk, with the time of their last change."""
    return {path.name: path.stat().st_mtime_ns for path in Path(cache).rglob("*.o")}
