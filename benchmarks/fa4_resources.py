"""Compile fa4 configs without a GPU, and hold what the rules say against what the compiler says.

``python benchmarks/fa4_resources.py`` prints Markdown. Its three parts:

1. sm_90 forward configs that the rules call valid: all must compile, with the shared memory that FA4-F007 predicts;
2. likewise on sm_100, where there is no prediction;
3. configs that the rules refuse for shared memory, registers or the tile: each must fail to compile, or ask for more
   shared memory than there is.

Exit code 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello, Result
from attnctl.rules.check import check_case
from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Candidate, Case, Mask, Outcome, Problem, Scalar, Task
from attnctl_kernels.fa4.resources import smem_bytes
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.rule import Severity

DEADLINE_S = 600.0
HEAD_DIMS = ((64, 64), (72, 72), (128, 128), (192, 128), (192, 192), (256, 256))
TILES = ((64, 32, True), (64, 16, False), (128, 48, False), (192, 32, True))  # P in registers
REFUSED = (
    # head sizes, tile, P in registers
    ((64, 64), (96, 64), True),
    ((128, 128), (80, 64), True),
    ((64, 64), (64, 272), True),
    ((64, 256), (192, 16), True),
    ((256, 256), (64, 112), True),
    ((192, 192), (64, 144), True),
)
BLACKWELL = ((64, "dense"), (128, "dense"), (96, "causal"))


@dataclass(frozen=True, eq=False)
class Trial:
    case: Case
    codes: tuple[str, ...]  # of errors

    @property
    def task(self) -> Task:
        case = self.case
        return Task(family="fa4", version=case.version, arch=case.arch, pass_name=case.pass_name, problem=case.problem)

    @property
    def candidate(self) -> Candidate:
        return Candidate(config=dict(self.case.config), sparse_block=self.case.sparse_block)

    @property
    def name(self) -> str:
        problem, config = self.case.problem, self.case.config
        dims = f"{problem.head_dim}/{problem.head_dim_v}"
        rs = f" | {'yes' if config['mma_pv_is_rs'] else 'no'}" if "mma_pv_is_rs" in config else ""
        return f"{dims} | {config['tile_m']} x {config['tile_n']}{rs}"


def trial(arch: str, dims: tuple[int, int], pattern: str = "dense", **config: Scalar) -> Trial:
    problem = Problem(
        batch_size=1,
        seqlen_q=4096,
        seqlen_k=4096,
        num_heads_q=4,
        num_heads_kv=4,
        head_dim=dims[0],
        head_dim_v=dims[1],
        dtype="bfloat16",
        mask=Mask.model_validate({"pattern": pattern}),
    )
    block = None if pattern == "dense" else (256, 128)
    complete = {**FAMILY.default_config(problem, "forward", arch, block), **config}
    case = Case("fa4", FAMILY.versions[-1], arch, problem, "forward", complete, block)
    errors = tuple(rule.code for rule, _ in check_case(case) if rule.severity is Severity.ERROR)
    return Trial(case, errors)


def hopper() -> Iterator[Trial]:
    for dims in HEAD_DIMS:
        for tile_m, tile_n, rs in TILES:
            yield trial("sm_90", dims, tile_m=tile_m, tile_n=tile_n, mma_pv_is_rs=rs)


def refused() -> Iterator[Trial]:
    for dims, (tile_m, tile_n), rs in REFUSED:
        yield trial("sm_90", dims, tile_m=tile_m, tile_n=tile_n, mma_pv_is_rs=rs)


def compiled(arch: str, trials: list[Trial], jobs: int, folder: Path) -> dict[Trial, Result]:
    """In the order of ``trials``."""
    hello = Hello(family="fa4", arch=arch, device="none")
    results: dict[Trial, Result] = {}
    with CompilePool(hello, jobs, Deadlines(start=DEADLINE_S, compile=DEADLINE_S), folder) as pool:
        compiling = {each: pool.submit(each.task, each.candidate) for each in trials}
        for each, future in compiling.items():
            results[each] = future.result()
            print(f"{arch} {each.candidate}: {results[each].outcome}", file=sys.stderr, flush=True)
    return results


def resources(result: Result) -> dict[str, int]:
    return result.compiled.resources if result.compiled else {}


def hopper_table(results: dict[Trial, Result]) -> Iterator[str]:
    yield "| head dims | tile | P in registers | shared memory: predicted | asked for | registers | local bytes |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for each, result in results.items():
        found = resources(result)
        predicted = smem_bytes(each.case.problem, each.case.config)
        asked = found.get("smem_bytes", result.reason or "unknown")
        yield f"| {each.name} | {predicted} | {asked} | {found.get('registers')} | {found.get('local_bytes')} |"


def blackwell_table(results: dict[Trial, Result]) -> Iterator[str]:
    yield "| mask | head dims | tile | shared memory | registers | local bytes |"
    yield "|---|---|---|---:|---:|---:|"
    for each, result in results.items():
        found = resources(result)
        numbers = " | ".join(str(found.get(name)) for name in ("smem_bytes", "registers", "local_bytes"))
        yield f"| {each.case.problem.mask.pattern} | {each.name} | {numbers} |"


def refused_table(results: dict[Trial, Result]) -> Iterator[str]:
    yield "| head dims | tile | P in registers | rules | compiling says |"
    yield "|---|---|---|---|---|"
    for each, result in results.items():
        says = result.reason or f"asks for {resources(result).get('smem_bytes')} bytes of shared memory"
        yield f"| {each.name} | {', '.join(each.codes)} | {says.replace('|', '/')} |"


def fails(each: Trial, result: Result) -> bool:
    limit = ARCHES[str(each.case.arch)].smem_bytes
    return result.outcome is not Outcome.OK or resources(result).get("smem_bytes", 0) > limit


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="compile workers")
    parser.add_argument("--folder", type=Path, help="cache and logs are kept here")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="fa4-resources-"))

    valid = [each for each in hopper() if not each.codes]
    wrong = [each for each in refused() if each.codes]
    hopper_results = compiled("sm_90", [*valid, *wrong], arguments.jobs, folder)
    right = {each: hopper_results[each] for each in valid}
    bad = {each: hopper_results[each] for each in wrong}
    blackwell = [trial("sm_100", (dim, dim), pattern) for dim, pattern in BLACKWELL]
    blackwell_results = compiled("sm_100", [each for each in blackwell if not each.codes], arguments.jobs, folder)

    off = [
        each
        for each, result in right.items()
        if resources(result).get("smem_bytes") != smem_bytes(each.case.problem, each.case.config)
    ]
    raised = [each for each, result in {**right, **blackwell_results}.items() if fails(each, result)]
    passed = [each for each, result in bad.items() if not fails(each, result)]
    for table in (hopper_table(right), blackwell_table(blackwell_results), refused_table(bad)):
        print("\n".join(table), end="\n\n")
    print(
        f"{len(right)} sm_90 configs, {len(off)} with another size than predicted; {len(raised)} of "
        f"{len(right) + len(blackwell_results)} valid ones fail, {len(passed)} of {len(bad)} refused ones work"
    )
    return 1 if off or raised or passed else 0


if __name__ == "__main__":
    sys.exit(main())
