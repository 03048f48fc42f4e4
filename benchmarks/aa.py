"""How often does a decision call a config different from itself?

    python benchmarks/aa.py PROFILE... [--slots 12] [--groups 2]

Runs finals in which every slot holds the profile's own config: ``--groups`` times three fresh processes of 50 cycles,
as `tune` does it. Then every pair of slots is decided as candidate and incumbent, with two other slots as the A/A
pair. All decisions should be *same*; *better* or *worse* is a false verdict. Prints one Markdown row per profile.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from itertools import combinations
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Cycle, Hello
from attnctl.profile.candidate import profile_candidate
from attnctl.profile.load import load
from attnctl.profile.lookup import case_for
from attnctl.profile.problems import tasks
from attnctl.state import state_dir
from attnctl.tune.decide import Comparison, compare
from attnctl.tune.finals import CYCLES, PROCESSES


def finals(profile: Path, device: str, slots: int, count: int) -> tuple[list[tuple[Cycle, ...]], int | None]:
    """The cycles of ``count`` fresh processes, and the default SM clock."""
    loaded = load(profile)
    assert loaded.profile is not None
    task = tasks(loaded.profile)[0]
    case = case_for(loaded, task)
    candidate = profile_candidate(case)
    contenders = [Contender(name=f"slot {index}", candidate=candidate) for index in range(slots)]
    with Measurer(Hello(family=task.family, arch=task.arch, device=device), Deadlines(), state_dir()) as measurer:
        measurer.warm_up(count)
        measurer.prepare(task)
        cycles = [measurer.finals(contenders, CYCLES).cycles for _ in range(count)]
        return cycles, measurer.environment.clock_default_mhz


def decisions(processes: list[tuple[Cycle, ...]], clock: int | None) -> list[Comparison]:
    names = list(processes[0][0].samples_us)
    found = []
    for candidate, incumbent in combinations(names, 2):
        others = [name for name in names if name not in (candidate, incumbent)]
        aa = (others[len(found) % len(others)], others[(len(found) + 1) % len(others)])
        found.append(compare(processes, candidate, incumbent, aa, default_clock_mhz=clock))
    return found


def row(profile: Path, processes: list[tuple[Cycle, ...]], clock: int | None) -> str:
    groups = [processes[first : first + PROCESSES] for first in range(0, len(processes), PROCESSES)]
    found = [each for group in groups for each in decisions(group, clock)]
    medians = [statistics.median(us for cycle in process for us in cycle.samples_us.values()) for process in processes]
    verdicts = Counter(str(each.verdict) for each in found)
    distances = sorted(abs(math.log(each.ratio)) for each in found)
    floors = sorted(each.floor for each in found)
    return (
        f"| {profile.stem} | {len(found)} | {', '.join(f'{n} {name}' for name, n in verdicts.items())} | "
        f"{statistics.median(distances):.3%} | {distances[-1]:.3%} | "
        f"{statistics.median(floors):.3%} | {floors[-1]:.3%} | "
        f"{statistics.median(medians):.1f} us | {max(medians) / min(medians) - 1:.2%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    print(
        "| profile | decisions | verdicts | median difference | largest | median A/A floor | largest | median time "
        "| between processes |\n" + "|---" * 9 + "|"
    )
    for profile in arguments.profiles:
        processes, clock = finals(profile, arguments.device, arguments.slots, PROCESSES * arguments.groups)
        print(row(profile, processes, clock), flush=True)


if __name__ == "__main__":
    main()
