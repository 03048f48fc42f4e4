"""What a whole `attnctl tune` takes, from the command to the written file, and what a loop by hand would have taken.

    python benchmarks/tune.py PROFILE... [--strategy guided] [--repeat 1] [--warm]

Runs the tool from scratch (``--fresh``; no cached kernels, unless ``--warm`` keeps them between repetitions) in one
process per profile and prints one Markdown row each. State goes to a temporary folder; tuned profiles go where `tune`
puts them, or to a folder per repetition below ``--out``, and journals to ``--journals``.

*Loop* is what compiling, checking and timing the whole space one candidate after another would take, those that the
rules drop included: what the candidates of this run took, by the mean. Compilers that run side by side slow each other
down, so that this is rather too much; ``--alone N`` compiles N candidates by themselves first and takes their mean.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello
from attnctl.profile.load import load
from attnctl.profile.lookup import case_for
from attnctl.profile.problems import tasks
from attnctl.state import CACHE_FOLDER_VARIABLE
from attnctl.tune.journal import read
from attnctl.tune.space import build

HEADS = (
    "profile", "strategy", "space", "dropped", "tried", "wall", "start", "screening", "finals", "last check",
    "compiling, all cores", "in use", "loop", "loop/wall", "winner/default", "winner",
)  # fmt: skip


def run(profile: Path, state: Path, options: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Wall seconds, and the tool's own JSON."""
    command = [sys.executable, "-m", "attnctl", "tune", str(profile), "--fresh", "--format", "json", *options]
    environ = {**os.environ, "ATTNCTL_STATE_DIR": str(state), CACHE_FOLDER_VARIABLE: str(state / "cache")}
    begun = time.perf_counter()
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{profile}: attnctl tune ended with {done.returncode}")
    return seconds, json.loads(done.stdout)


def compile_alone_s(profile: Path, count: int) -> float:
    """Mean seconds of compiling ``count`` candidates of the (first) task, spread over its space, on an idle machine."""
    loaded = load(profile)
    assert loaded.profile is not None
    task = tasks(loaded.profile)[0]
    fixed = loaded.profile.sparse_block_of(task.pass_name)
    candidates = build(case_for(loaded, task), sparse_block=fixed, search=loaded.profile.search).candidates
    chosen = candidates[:: max(1, len(candidates) // count)][:count]
    hello = Hello(family=task.family, arch=task.arch, device="none")
    with tempfile.TemporaryDirectory() as folder, CompilePool(hello, 1, Deadlines(), Path(folder)) as pool:
        results = [pool.submit(task, each).result() for each in chosen]
    return statistics.mean([each.compiled.seconds for each in results if each.compiled] or [0.0])


def loop_s(task: dict[str, Any], alone_s: float | None) -> float:
    """Everything in the space, one after the other."""
    records = read(Path(task["journal"])).outcomes.values()
    compiling = [each.result.compiled.seconds for each in records if each.result.compiled]
    measuring = [sum(each.result.seconds.values()) for each in records if each.result.timing]
    mean = (alone_s or statistics.mean(compiling or [0.0])) + statistics.mean(measuring)
    return mean * float(task["space"])


def row(profile: Path, strategy: str, seconds: float, task: dict[str, Any], alone_s: float | None) -> str:
    dropped = sum(each["count"] for each in task["dropped"])
    took, loop = task["seconds"], loop_s(task, alone_s)
    against = task.get("against_default") or {"ratio": 1.0, "low": 1.0, "high": 1.0}
    winner = " ".join(f"{name}={value}" for name, value in (task["winner"] or {"config": {}})["config"].items())
    cells = (
        profile.stem, strategy, task["space"], dropped, sum(task["outcomes"].values()), f"{seconds:.1f} s",
        *(f"{took[name]:.1f} s" for name in ("start", "screening", "finals", "last_check")),
        f"{took['compiling_core']:.0f} s", f"{took['measuring'] / took['screening']:.0%}", f"{loop:.0f} s",
        f"{loop / seconds:.1f}", f"{against['ratio']:.3f} [{against['low']:.3f}, {against['high']:.3f}]", winner,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--strategy", default="guided")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--warm", action="store_true", help="repetitions find the kernels that the first one compiled")
    parser.add_argument("--alone", type=int, default=0, metavar="N", help="compile N candidates by themselves first")
    parser.add_argument("--out", help="as for tune: where tuned profiles go, and are looked for")
    parser.add_argument("--journals", type=Path, help="folder to keep the journals in")
    arguments = parser.parse_args()
    rows = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for profile in arguments.profiles:
        alone_s = compile_alone_s(profile, arguments.alone) if arguments.alone else None
        with tempfile.TemporaryDirectory() as folder:
            for number in range(arguments.repeat):
                state = Path(folder) / ("state" if arguments.warm else str(number))
                out = ["--out", f"{arguments.out}/{number}"] if arguments.out else []
                seconds, document = run(profile, state, ["--strategy", arguments.strategy, *out])
                rows += [row(profile, arguments.strategy, seconds, task, alone_s) for task in document["tasks"]]
                print(rows[-1], flush=True)
                if arguments.journals:
                    shutil.copytree(state / "journals", arguments.journals / str(number), dirs_exist_ok=True)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
