"""Is the winner of `attnctl tune` the best there is? Time everything that ran, interleaved, in one process.

    python benchmarks/exhaustive.py JOURNAL... [--cycles 60]

Takes the journals of finished sweeps (``.attnctl/journals``), measures every candidate that they call ``ok`` on this
machine's device, one sample of each per cycle, and compares the winner's median with the best median. The sweep's
own timings are not used. Prints one Markdown row per journal; ``--top N`` lists the fastest.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Hello
from attnctl.state import state_dir
from attnctl.tune.journal import Recorded, read
from attnctl_kernels.contract import Outcome


def medians(recorded: Recorded, device: str, cycles: int) -> tuple[dict[str, float], float]:
    """Microseconds by candidate, and the operations that one call needs."""
    task = recorded.header.task
    running = [each.candidate for each in recorded.outcomes.values() if each.result.outcome is Outcome.OK]
    contenders = [Contender(name=str(each), candidate=each) for each in running]
    with Measurer(Hello(family=task.family, arch=task.arch, device=device), Deadlines(), state_dir()) as measurer:
        flop = measurer.prepare(task, recorded.header.cache).flop
        reply = measurer.finals(contenders, cycles)
    for name, result in reply.failed.items():
        print(f"failed here: {name}: {result.outcome}: {result.reason}")
    names = [each.name for each in contenders if each.name not in reply.failed]
    return {name: statistics.median(cycle.samples_us[name] for cycle in reply.cycles) for name in names}, flop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+", type=Path)
    parser.add_argument("--cycles", type=int, default=60)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--top", type=int, default=3)
    arguments = parser.parse_args()
    rows = ["| profile | candidates | winner | us | TFLOP/s | best | us | winner/best | worst/best |", "|---" * 9 + "|"]
    for path in arguments.journals:
        recorded = read(path)
        if recorded.done is None:
            print(f"{path}: the sweep was not finished")
            continue
        times, flop = medians(recorded, arguments.device, arguments.cycles)
        ordered = sorted(times, key=times.__getitem__)
        winner, best = str(recorded.done.winner), ordered[0]
        for name in ordered[: arguments.top]:
            print(f"{recorded.header.profile}: {times[name]:.1f} us {name}")
        rows.append(
            f"| {recorded.header.profile} | {len(times)} | {winner} | {times[winner]:.1f} | "
            f"{flop / times[winner] / 1e6:.0f} | {best} | {times[best]:.1f} | {times[winner] / times[best]:.4f} | "
            f"{times[ordered[-1]] / times[best]:.2f} |"
        )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
