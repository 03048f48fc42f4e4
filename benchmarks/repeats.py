"""Does `attnctl tune` choose the same config every time?

    python benchmarks/repeats.py PROFILE... [--runs 10] [--device cuda:0] [--cold]

Tunes each profile ``--runs`` times from scratch (no journal, no tuned file of the run before; compiled kernels are kept
unless ``--cold``). Then all winners meet in three fresh processes, interleaved, the most frequent one twice as the A/A
pair, and each is decided against it as `tune` decides. A repetition is good if its winner is the most frequent one or
*same* as it. Prints one Markdown row per winner; exits with 1 if any repetition was not good.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tune import run  # the benchmark beside this one

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Hello
from attnctl.tune.decide import Comparison, compare
from attnctl.tune.finals import AGAIN, CYCLES, PROCESSES
from attnctl.tune.journal import read
from attnctl_kernels.contract import Candidate, Task

HEADS = ("profile", "pass", "winner", "times", "against the most frequent", "floor", "verdict")
Winners = dict[str, tuple[Task, list[Candidate]]]  # by pass and problem


def winners(profile: Path, runs: int, folder: Path, *, cold: bool, strategy: str) -> Winners:
    """The winner of every repetition, per task. A repetition in which nothing won ends the benchmark."""
    found: Winners = {}
    for number in range(runs):
        state = folder / (str(number) if cold else "state")
        options = ["--strategy", strategy, "--out", str(folder / f"out-{number}")]
        seconds, document = run(profile, state, options)
        for described in document["tasks"]:
            recorded = read(Path(described["journal"]))
            if recorded.done is None or recorded.done.winner is None:
                sys.exit(f"{profile}: repetition {number + 1} has no winner: {described['reason']}")
            task = recorded.header.task
            name = f"{described['pass']} {described['problem']}"
            found.setdefault(name, (task, []))[1].append(recorded.done.winner)
            print(f"{profile.stem} {number + 1}/{runs}, {seconds:.1f} s: {recorded.done.winner}", file=sys.stderr)
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
    parser.add_argument("--cold", action="store_true", help="compile anew in every repetition")
    arguments = parser.parse_args()
    rows, bad = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"], 0
    for profile in arguments.profiles:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found = winners(profile, arguments.runs, folder, cold=arguments.cold, strategy=arguments.strategy)
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
