"""How long until a decision, and against what: guided, everything on all cores, and a loop by hand.

    python benchmarks/decision.py PROFILE... [--alone 2] [--journals FOLDER]

Tunes each profile twice from scratch (no cached kernels, nothing tuned): with every candidate, then guided. Prints two
Markdown tables, a row per problem. Everything but the wall time comes from the journals and from what `tune` reports.

*Loop* compiles, checks and times one candidate after another: what those of the exhaustive sweep took, added up.
Compilers that run side by side slow each other down, so that each compilation counts what ``--alone N`` candidates take
by themselves, in the mean. *Whole space* adds the candidates that rules dropped, at the mean of the others: a loop by
hand does not know the rules. Candidates that took their process down count as nothing: both are rather too short.

*Regret* is the time of guided's winner over that of the exhaustive sweep's, both as the latter's screening measured
them. Not over the fastest of the screening: a device that has just been idle clocks higher, and finals may say
otherwise. *Measuring phase* is from the first to the last moment in which the device served a request; *busy* is the
share of it in which it did.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune import compile_alone_s, run

from attnctl.tune.finals import ranked
from attnctl.tune.journal import Recorded, read
from attnctl_kernels.contract import Span

DECISION = (
    "problem", "space", "candidates", "guided", "exhaustive", "/guided", "loop", "/guided", "whole space", "/guided",
    "tried", "share", "regret", "winner/default",
)  # fmt: skip
PHASES = (
    "problem", "strategy", "until measuring", "screening", "busy", "finals", "last check", "measuring phase", "busy",
    "after it and between", "compiling, all cores", "compile workers", "finals' processes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tuned:
    """One task of one run."""

    wall_s: float  # of the whole command, which may have had several tasks
    task: dict[str, Any]
    journal: Recorded

    @property
    def spans(self) -> list[Span]:
        """When the device served a request."""
        screening = [each.result.span for each in self.journal.outcomes.values()]
        later = [each.span for each in self.journal.finals]
        later.append(self.journal.done.last_check if self.journal.done else None)
        return [each for each in (*screening, *later) if each and each.lane == "measure"]

    @property
    def compilers(self) -> int:
        results = (each.result for each in self.journal.outcomes.values())
        return len({each.compiled.span.worker for each in results if each.compiled and each.compiled.span})


def tuned(profile: Path, strategy: str, keep: Path | None) -> list[Tuned]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        wall_s, document = run(profile, state, ["--strategy", strategy, "--out", f"{folder}/tuned"])
        if keep:
            shutil.copytree(state / "journals", keep / strategy, dirs_exist_ok=True)
        return [Tuned(wall_s, task, read(Path(task["journal"]))) for task in document["tasks"]]


def loop_s(everything: Tuned, alone_s: float) -> tuple[float, float]:
    """Of the candidates; and of the whole space."""
    results = [each.result for each in everything.journal.outcomes.values()]
    each_s = [
        (alone_s if result.compiled else 0.0)
        + sum(seconds for phase, seconds in result.seconds.items() if not result.compiled or phase != "compile")
        for result in results
    ]
    return sum(each_s), statistics.mean(each_s) * float(everything.task["space"])


def regret(guided: Tuned, everything: Tuned) -> str:
    ours, theirs = guided.journal.done, everything.journal.done
    if ours is None or theirs is None:
        return "?"
    if ours.winner == theirs.winner:
        return "0, the same winner"
    ranking = ranked(list(everything.journal.outcomes.values()))
    medians = {each.candidate.key: each.result.timing.median_us for each in ranking if each.result.timing}
    if not {ours.winner.key, theirs.winner.key} <= set(medians):
        return "?"
    return f"{medians[ours.winner.key] / medians[theirs.winner.key] - 1:.2%}"


def decision_row(name: str, guided: Tuned, everything: Tuned, alone_s: float) -> str:
    loop, whole = loop_s(everything, alone_s)
    tried, count = sum(guided.task["outcomes"].values()), len(everything.journal.outcomes)
    against = guided.task.get("against_default") or {"ratio": 1.0, "low": 1.0, "high": 1.0}
    wall = guided.wall_s
    cells = (
        name, guided.task["space"], count, f"{wall:.1f} s", f"{everything.wall_s:.1f} s",
        f"{everything.wall_s / wall:.1f}", f"{loop:.0f} s", f"{loop / wall:.1f}", f"{whole:.0f} s",
        f"{whole / wall:.1f}", tried, f"{tried / count:.0%}", regret(guided, everything),
        f"{against['ratio']:.3f} [{against['low']:.3f}, {against['high']:.3f}]",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def phases_row(name: str, strategy: str, it: Tuned) -> str:
    took, spans = it.task["seconds"], it.spans
    measuring_s = max(each.ended for each in spans) - min(each.begun for each in spans) if spans else 0.0
    busy_s = sum(each.ended - each.begun for each in spans)
    rest_s = it.wall_s - took["start"] - took["screening"] - took["finals"]
    finals = ", ".join(f"{each.span.ended - each.span.begun:.1f} s" for each in it.journal.finals if each.span)
    cells = (
        name, strategy, f"{took['start']:.1f} s", f"{took['screening']:.1f} s",
        f"{took['measuring'] / took['screening']:.0%}" if took["screening"] else "",
        f"{took['finals']:.1f} s", f"{took['last_check']:.1f} s", f"{measuring_s:.1f} s",
        f"{busy_s / measuring_s:.0%}" if measuring_s else "", f"{rest_s:.1f} s", f"{took['compiling_core']:.0f} s",
        it.compilers, finals,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--alone", type=int, default=2, metavar="N", help="candidates to compile by themselves")
    parser.add_argument("--journals", type=Path, help="folder to keep the journals in")
    arguments = parser.parse_args()
    decisions, phases = [], []
    for profile in arguments.profiles:
        alone_s = compile_alone_s(profile, arguments.alone)
        keep = arguments.journals / profile.stem if arguments.journals else None
        everything, guided = tuned(profile, "exhaustive", keep), tuned(profile, "guided", keep)
        for all_of_it, some_of_it in zip(everything, guided, strict=True):
            name = f"{profile.stem} {all_of_it.journal.header.task.pass_name}"
            decisions.append(decision_row(name, some_of_it, all_of_it, alone_s))
            phases += [
                phases_row(name, strategy, it) for strategy, it in (("exhaustive", all_of_it), ("guided", some_of_it))
            ]
            print(decisions[-1], *phases[-2:], sep="\n", flush=True)
    print("", table(DECISION, decisions), "", table(PHASES, phases), sep="\n")


if __name__ == "__main__":
    main()
