"""Does `attnctl tune` choose the same config every time?

    python benchmarks/repeats.py PROFILE... [--runs 10] [--device cuda:0]

Decides each profile ``--runs`` times, each time with a screening of its own and finals in fresh processes, and nothing
tuned or in the journal. Kernels are compiled once, and the process that screens is kept: a repetition takes what
measuring takes. Then all winners meet in three more processes, interleaved, the most frequent one twice as the A/A
pair, and each is decided against it as `tune` decides. A repetition is good if its winner is the most frequent one or
*same* as it. Prints one Markdown row per winner; exits with 1 if any repetition was not good.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.interfaces import PoolLike
from attnctl.gpu.lane import Lanes
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Hello
from attnctl.profile.load import load
from attnctl.state import CACHE_FOLDER_VARIABLE, STATE_DIR_VARIABLE
from attnctl.tune.decide import Comparison, compare
from attnctl.tune.finals import AGAIN, CYCLES, PROCESSES
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.progress import Progress
from attnctl.tune.run import Options, Tuning
from attnctl.tune.strategies import get_strategy
from attnctl_kernels.contract import Candidate, Task

HEADS = ("profile", "pass", "winner", "times", "against the most frequent", "floor", "verdict")
Winners = dict[str, tuple[Task, list[Candidate]]]  # by pass and problem


@dataclass
class Repeated(Tuning):
    """The decisions of one profile, again and again on the device that is open."""

    runs: int = 1

    def _run_on(
        self, lanes: Lanes, pool: PoolLike | None, folder: Path | None, startup_s: float, tasks_after: int
    ) -> None:
        assert folder
        for number in range(self.runs):
            again = folder / str(number)
            self.options = replace(self.options, out=again / "tuned")
            begun, known = time.perf_counter(), len(self.results)
            super()._run_on(lanes, pool, again, startup_s, tasks_after)
            chosen = ", ".join(str(each.winner) for each in self.results[known:])
            seconds = time.perf_counter() - begun
            print(f"{self.loaded.path.stem} {number + 1}/{self.runs}, {seconds:.1f} s: {chosen}", file=sys.stderr)


def winners(profile: Path, runs: int, device: str, strategy: str) -> Winners:
    """The winner of every repetition, per task. A repetition in which nothing won ends the benchmark."""
    options = Options(device=device, strategy=get_strategy(strategy))
    repeated = Repeated(load(profile), options, Progress(), Interrupts(), runs=runs)
    repeated.run()
    found: Winners = {}
    for result in repeated.results:
        if result.winner is None:
            sys.exit(f"{profile}: a repetition has no winner: {result.status}")
        name = f"{result.task.pass_name} {result.task.problem.slug}"
        found.setdefault(name, (result.task, []))[1].append(result.winner)
    return found


def against_the_first(task: Task, candidates: list[Candidate], device: str, folder: Path) -> list[Comparison]:
    """Each of ``candidates`` but the first, against the first."""
    names = [f"winner {number}" for number in range(len(candidates))]
    pair = (names[0], names[0] + AGAIN)
    contenders = [Contender(name=name, candidate=each) for name, each in zip(names, candidates, strict=True)]
    contenders.append(Contender(name=pair[1], candidate=candidates[0]))
    with Measurer(Hello(family=task.family, arch=task.arch, device=device), Deadlines(), folder) as measurer:
        measurer.prepare(task)
        cycles = [measurer.finals(contenders, CYCLES).cycles for _ in range(PROCESSES)]
        clock = measurer.environment.clock_default_mhz
    return [compare(cycles, name, names[0], pair, default_clock_mhz=clock) for name in names[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--strategy", default="guided")
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    rows, bad = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"], 0
    for profile in arguments.profiles:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            os.environ[STATE_DIR_VARIABLE] = name
            os.environ[CACHE_FOLDER_VARIABLE] = f"{name}/cache"
            found = winners(profile, arguments.runs, arguments.device, arguments.strategy)
            for task, chosen in found.values():
                counts = Counter(each.key for each in chosen)
                by_key = {each.key: each for each in chosen}
                ordered = [(by_key[key], count) for key, count in counts.most_common()]
                rest = [each for each, _ in ordered]
                compared = against_the_first(task, rest, arguments.device, folder) if len(rest) > 1 else []
                (first, count), *others = ordered
                rows.append(f"| {profile.stem} | {task.pass_name} | {first} | {count} | 1 | | most frequent |")
                for (each, count), comparison in zip(others, compared, strict=True):
                    interval = f"{comparison.ratio:.4f} [{comparison.low:.4f}, {comparison.high:.4f}]"
                    cells = (profile.stem, task.pass_name, each, count, interval, f"{comparison.floor:.2%}")
                    rows.append(f"| {' | '.join(map(str, cells))} | {comparison.verdict} |")
                    bad += count if str(comparison.verdict) != "same" else 0
    print(*rows, "", f"{bad} repetitions whose winner was neither the most frequent one nor the same as it", sep="\n")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
