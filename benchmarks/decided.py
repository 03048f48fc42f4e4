"""What tuning gained, from journals of sweeps that ran: the winner against the kernel's own choice.

    python benchmarks/decided.py JOURNAL...

Decides each journal again, as `attnctl report` does, and prints one Markdown row: what ran and what failed, the medians
of default and winner in the screening, their ratio in the finals with its 95 % interval, and how many of the candidates
that ran were slower than the default. Where the default does not run, the profile's own config is in its place, marked
"(own)". No device is needed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from attnctl.report._page.recall import recall
from attnctl.tune.outcome import TaskResult
from attnctl_kernels.contract import Candidate, Outcome

HEADS = (
    "profile", "pass", "ok", "failed", "default us", "winner us", "TFLOP/s", "winner/default",
    "verdict", "slower than default", "winner",
)  # fmt: skip


def median_us(result: TaskResult, candidate: Candidate | None) -> float | None:
    record = next((each for each in result.outcomes if each.candidate == candidate), None)
    timing = record.result.timing if record else None
    return timing.median_us if timing else None


def row(path: Path) -> str:
    sweep = recall(path)
    result = sweep.result
    default, winner = result.space.default, result.winner
    counts = Counter(each.result.outcome for each in result.outcomes)
    failed = sum(counts.values()) - counts[Outcome.OK] - counts[Outcome.SKIPPED]
    mark = ""
    if median_us(result, default) is None:
        default, mark = result.space.incumbent, " (own)"
    own, best = median_us(result, default), median_us(result, winner)
    timings = [each.result.timing for each in result.outcomes if each.result.timing]
    slower = f"{sum(each.gave_up or each.median_us > own for each in timings)} of {len(timings)}" if own else ""
    against = result.against_default or result.against_baseline
    ratio = f"{against.ratio:.3f} [{against.low:.3f}, {against.high:.3f}]" if against else ""
    flop = result.prepared.flop if result.prepared else 0.0
    verdict = str(against.verdict) if against else "the default wins" if winner == default else "not decided"
    cells = (
        sweep.header.profile, result.task.pass_name, counts[Outcome.OK], failed,
        f"{own:.1f}{mark}" if own else "", f"{best:.1f}" if best else "", f"{flop / best / 1e6:.3g}" if best else "",
        ratio or ("1" if winner == default else ""), verdict, slower, winner or "",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+", type=Path)
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", sep="\n")
    for path in arguments.journals:
        print(row(path), flush=True)


if __name__ == "__main__":
    main()
