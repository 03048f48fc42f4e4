"""Do the rules refuse what the compiler refuses, and nothing else? Compile whole spaces without a GPU.

    python benchmarks/foresight.py PROFILE... [--pass backward] [--narrow] [--jobs 16]

Compiles every candidate of the family's space for each task of a profile, those that rules drop included; ``--narrow``
keeps to the profile's own ``search``. Prints Markdown: per task what the rules let through, and per rule what it drops.
A failure that no rule foresaw is listed; one makes the exit code 1. A dropped candidate that compiles is counted only:
many rules are about launches and results, of which a compiler knows nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import Future
from pathlib import Path

from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello, Result
from attnctl.profile.load import load
from attnctl.profile.lookup import case_for
from attnctl.profile.problems import tasks
from attnctl.tune.space import build
from attnctl_kernels.contract import Candidate, Outcome

ALLOWED = "none"


def compiled(path: Path, pass_name: str | None, jobs: int, *, narrow: bool) -> list[tuple[str, str, Candidate, Result]]:
    """Per candidate: the task, the first rule that it breaks, itself, and how compiling ended."""
    loaded = load(path)
    assert loaded.profile is not None
    found = []
    for task in tasks(loaded.profile):
        if pass_name not in {None, task.pass_name}:
            continue
        fixed = loaded.profile.sparse_block_of(task.pass_name)
        space = build(case_for(loaded, task), sparse_block=fixed, search=loaded.profile.search if narrow else None)
        hello = Hello(family=task.family, arch=task.arch, device="none")
        candidates = [(ALLOWED, each) for each in space.candidates]
        candidates += [(each.rule.code, each.candidate) for each in space.drops]
        with tempfile.TemporaryDirectory() as folder, CompilePool(hello, jobs, Deadlines(), Path(folder)) as pool:
            submitted: list[tuple[str, Candidate, Future[Result]]] = [
                (rule, each, pool.submit(task, each)) for rule, each in candidates
            ]
            name = f"{path.stem} {task.pass_name}"
            found += [(name, rule, each, future.result()) for rule, each, future in submitted]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--pass", dest="pass_name", choices=("forward", "backward"))
    parser.add_argument("--narrow", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    results = []
    for path in arguments.profiles:
        results += compiled(path, arguments.pass_name, arguments.jobs, narrow=arguments.narrow)
    outcomes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, rule, _, result in results:
        outcomes[name, rule][result.outcome] += 1
    print("| task | rule broken | candidates | outcomes of compiling |\n|---|---|---:|---|")
    for (name, rule), counts in sorted(outcomes.items()):
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        print(f"| {name} | {rule} | {counts.total()} | {said} |")
    unforeseen = [each for each in results if each[1] == ALLOWED and each[3].outcome is not Outcome.OK]
    for name, _, candidate, result in unforeseen:
        print(f"not foreseen: {name}: {candidate}: {result.outcome}: {result.reason}")
    return 1 if unforeseen else 0


if __name__ == "__main__":
    sys.exit(main())
