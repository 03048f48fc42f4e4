"""How long a report takes, and how large it is.

    python benchmarks/report.py JOURNAL [--candidates 1000] [--repeat N]

The candidates of the journal are repeated at tile sizes of their own until there are enough of them; the finals stay.
What is timed is `attnctl report JOURNAL --out FILE` in a process of its own, from the start of Python to its end, and
the same without the start: journal to page.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from validate import ATTNCTL, machine, once

STEP = 1024  # added to tile_n: no rule's business, the journal is only read


def enlarged(path: Path, count: int) -> str:
    """The journal at ``path`` with ``count`` outcomes."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        lines = file.readlines()
    outcomes = [line for line in lines if json.loads(line)["record"] == "outcome"]
    extra = []
    for number in range(count - len(outcomes)):
        record = json.loads(outcomes[number % len(outcomes)])
        record["candidate"]["config"]["tile_n"] += STEP * (1 + number // len(outcomes))
        extra.append(json.dumps(record) + "\n")
    after = lines.index(outcomes[-1]) + 1
    return "".join([*lines[:after], *extra, *lines[after:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        journal, out = Path(folder, "journal.jsonl"), Path(folder, "report.html")
        journal.write_text(enlarged(arguments.journal, arguments.candidates), encoding="utf-8")
        command = (*ATTNCTL, "report", str(journal), "--out", str(out))
        once(command)
        runs = [once(command) for _ in range(arguments.repeat)]
        wall_s, cpu_s = [], []
        for _ in range(arguments.repeat):
            wall, cpu = built(journal)
            wall_s.append(wall)
            cpu_s.append(cpu)
        print(f"{machine()}; {arguments.candidates} candidates, median of {arguments.repeat}\n")
        print("| what | wall time | processor time |\n|---|---:|---:|")
        whole = statistics.median(run.wall_s for run in runs), statistics.median(run.cpu_s for run in runs)
        print(f"| attnctl report | {whole[0]:.2f} s | {whole[1]:.2f} s |")
        print(f"| journal to page | {statistics.median(wall_s):.2f} s | {statistics.median(cpu_s):.2f} s |")
        print(f"\n{out.stat().st_size / 1e6:.2f} MB, peak memory {max(run.peak_mb for run in runs):.0f} MB")


def built(journal: Path) -> tuple[float, float]:
    """Wall and processor seconds from a journal to its page."""
    from attnctl.report._page.contents import gather  # noqa: PLC0415 - imports are not what is timed
    from attnctl.report._page.page import page  # noqa: PLC0415

    wall, cpu = time.perf_counter(), time.process_time()
    page(gather([], [journal]))
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    sys.exit(main())
