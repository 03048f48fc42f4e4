"""Compile random configs of fa4's backward pass on sm_90 without a GPU, and hold the rules against the compiler.

    python benchmarks/fa4_backward.py --valid 40 --refused 5 --jobs 2

Draws configs, wider than the family's space, until there are ``--valid`` that break no rule, and ``--refused`` of each
rule that break it alone. All of the first kind must compile, with the shared memory that FA4-B015 predicts; those of
the second must not, or ask for more shared memory than there is. Rules about silent wrong results are left out: the
compiler takes such configs, and only a device shows what they are. Prints Markdown. Exit code 1 where a valid config
fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello, Result
from attnctl.rules.check import check_case
from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Candidate, Case, Outcome, Problem, Scalar, Task
from attnctl_kernels.fa4.backward import sm90_backward, sm90_smem_bytes
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.rule import Severity

DEADLINE_S = 900.0
ARCH = "sm_90"
HEAD_DIMS = ((64, 64), (64, 64), (128, 128), (128, 128), (96, 96), (192, 128), (192, 192), (256, 256))
VALUES: dict[str, tuple[Scalar, ...]] = {
    "tile_m": (48, 64, 64, 80, 96, 112, 128, 192),
    "tile_n": (48, 64, 80, 96, 112, 128, 128, 192),
    "num_stages_Q": (1, 2, 2, 3),
    "num_stages_dO": (1, 2),
    "num_stages_PdS": (1, 2),
    "SdP_swapAB": (True, False),
    "dKV_swapAB": (True, False),
    "dQ_swapAB": (True, False),
    "AtomLayoutMSdP": (1, 2),
    "AtomLayoutNdKV": (1, 2),
    "AtomLayoutMdQ": (1, 2),
    "num_wg": (1, 2, 2, 3),
    "dQ_single_wg": (True, False),
}
COMPILER_SAYS = ("FA4-B013", "FA4-B014", "FA4-B015", "FA4-B026", "FA4-B028", "FA4-B029", "FA4-B030")


def draw(numbers: random.Random) -> Case:
    dim, dim_v = numbers.choice(HEAD_DIMS)
    problem = Problem(
        batch_size=1,
        seqlen_q=1024,
        seqlen_k=1024,
        num_heads_q=4,
        num_heads_kv=numbers.choice((4, 4, 4, 2)),
        head_dim=dim,
        head_dim_v=dim_v,
        dtype="bfloat16",
    )
    config = {name: numbers.choice(values) for name, values in VALUES.items()}
    return Case("fa4", FAMILY.versions[-1], ARCH, problem, "backward", config, given=frozenset(config))


def sample(seed: int, valid: int, refused: int) -> dict[str, list[Case]]:
    """By the one rule that a case breaks; those that break none under the empty string."""
    wanted = {"": valid, **dict.fromkeys(COMPILER_SAYS, refused)}
    found: dict[str, list[Case]] = defaultdict(list)
    numbers = random.Random(seed)
    while any(len(found[code]) < count for code, count in wanted.items()):
        case = draw(numbers)
        codes = {rule.code for rule, _ in check_case(case) if rule.severity is Severity.ERROR} or {""}
        code = codes.pop()
        if not codes and len(found[code]) < wanted.get(code, 0) and case not in found[code]:
            found[code].append(case)
    return {code: found[code] for code in wanted}


def compiled(cases: list[Case], jobs: int, folder: Path) -> list[Result]:
    """In the order of ``cases``."""
    work = [
        (
            Task(family="fa4", version=each.version, arch=ARCH, pass_name="backward", problem=each.problem),
            Candidate(config=dict(each.config)),
        )
        for each in cases
    ]
    results: list[Result] = []
    deadlines = Deadlines(start=DEADLINE_S, compile=DEADLINE_S)
    with CompilePool(Hello(family="fa4", arch=ARCH, device="none"), jobs, deadlines, folder) as pool:
        compiling = [pool.submit(task, candidate) for task, candidate in work]
        for (task, candidate), future in zip(work, compiling, strict=True):
            results.append(result := future.result())
            dims = f"head_dim {task.problem.head_dim}/{task.problem.head_dim_v}"
            print(f"{dims} {candidate}: {result.outcome} {result.reason}", file=sys.stderr, flush=True)
    return results


def smem_bytes(result: Result) -> int:
    return result.compiled.resources.get("smem_bytes", 0) if result.compiled else 0


def fails(result: Result) -> bool:
    return result.outcome is not Outcome.OK or smem_bytes(result) > ARCHES[ARCH].smem_bytes


def predicted(case: Case) -> int:
    config = sm90_backward(case)
    return sm90_smem_bytes(case.problem, config) if config else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--valid", type=int, default=40)
    parser.add_argument("--refused", type=int, default=5, help="configs of each rule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="compile workers")
    arguments = parser.parse_args()

    drawn = sample(arguments.seed, arguments.valid, arguments.refused)
    cases = [each for group in drawn.values() for each in group]
    folder = Path(tempfile.mkdtemp(prefix="fa4-backward-"))
    results = dict(zip(map(id, cases), compiled(cases, arguments.jobs, folder), strict=True))

    print("| rule broken | configs | aborted | raised | too much shared memory | compiled |")
    print("|---|---:|---:|---:|---:|---:|")
    surprising = []
    for code, group in sorted(drawn.items()):
        outcomes = [results[id(each)] for each in group]
        aborted = sum(each.outcome is Outcome.WORKER_DIED for each in outcomes)
        raised = sum(each.outcome is Outcome.COMPILE_ERROR for each in outcomes)
        failed = sum(map(fails, outcomes))
        large = failed - aborted - raised
        print(f"| {code or 'none'} | {len(group)} | {aborted} | {raised} | {large} | {len(group) - failed} |")
        surprising += [(code, each) for each in group if fails(results[id(each)]) != bool(code)]
    off = [each for each in drawn[""] if smem_bytes(results[id(each)]) not in (0, predicted(each))]
    print(f"\n{len(off)} of {len(drawn[''])} valid configs ask for another amount of shared memory than predicted")
    for code, each in surprising:
        problem = each.problem
        print(f"- {code or 'none'}: head_dim {problem.head_dim}/{problem.head_dim_v}: {dict(each.config)}")
    return 1 if off or any(not code for code, _ in surprising) else 0


if __name__ == "__main__":
    sys.exit(main())
