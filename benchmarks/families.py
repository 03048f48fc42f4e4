"""The same problem on several families, as one Markdown table.

    python benchmarks/families.py PROFILE... --against flex,pallas_mgpu [--cycles 50]

Runs `attnctl bench PROFILE --against default,NAME...` for each profile: the config on disk (tuned, or else the
profile's own), the kernel's default, and every other family at its own default. Why a family cannot take a problem
stands below the table. A ratio is the time of a problem's first row over that of its own row: above 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADS = ("profile", "problem", "pass", "config", "median us", "TFLOP/s", "ratio", "95 % interval", "verdict")


def matches(profile: Path, against: str, cycles: int) -> list[dict[str, Any]]:
    """What `attnctl bench` says of every problem and pass of a profile."""
    command = [sys.executable, "-m", "attnctl", "bench", str(profile), "--against", f"default,{against}"]
    done = subprocess.run(
        [*command, "--cycles", str(cycles), "--format", "json"], stdout=subprocess.PIPE, text=True, check=False
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["matches"]
    except ValueError:
        sys.exit(f"{profile}: attnctl bench ended with {done.returncode}")
    return found


def rows(match: dict[str, Any]) -> Iterator[str]:
    for row in match["rows"]:
        latency, found = row["latency"], row["comparison"]
        if not latency:
            continue
        head = (Path(match["profile"]).stem, match["problem"], match["pass_name"], row["name"])
        interval = f"[{found['low']:.3f}, {found['high']:.3f}]" if found and found["high"] else ""
        numbers = (f"{latency['median_us']:.1f}", f"{row['tflops']:.3g}" if row["tflops"] else "")
        said = (f"{found['ratio']:.3f}", interval, found["verdict"]) if found else ("1", "", "")
        yield f"| {' | '.join((*head, *numbers, *said))} |"


def notes(match: dict[str, Any]) -> Iterator[str]:
    where = f"{Path(match['profile']).stem} {match['problem']} {match['pass_name']}"
    yield from (f"- {where}: {row['name']}: {row['note']}" for row in match["rows"] if row["note"])
    yield from (f"- {where}: {note}" for note in match["notes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--against", required=True, metavar="FAMILY,...")
    parser.add_argument("--cycles", type=int, default=50)
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", sep="\n")
    below: list[str] = []
    for profile in arguments.profiles:
        for match in matches(profile, arguments.against, arguments.cycles):
            print("\n".join(rows(match)), flush=True)
            below += notes(match)
    if below:
        print("", *below, sep="\n")


if __name__ == "__main__":
    main()
