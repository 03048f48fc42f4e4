"""What a whole `attnctl tune` takes, from the command to the written file, and how long the device was in use.

    python benchmarks/tune.py PROFILE...

Runs the tool from scratch (``--fresh``, no cached kernels) in one process per profile and prints one Markdown row each.
State goes to a temporary folder; tuned profiles go where `tune` puts them, journals to ``--journals``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run(profile: Path, state: Path) -> tuple[float, dict[str, Any]]:
    """Wall seconds, and the tool's own JSON."""
    command = [sys.executable, "-m", "attnctl", "tune", str(profile), "--fresh", "--format", "json"]
    environ = {**os.environ, "ATTNCTL_STATE_DIR": str(state)}
    begun = time.perf_counter()
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{profile}: attnctl tune ended with {done.returncode}")
    return seconds, json.loads(done.stdout)


def row(profile: Path, seconds: float, task: dict[str, Any]) -> str:
    dropped = sum(each["count"] for each in task["dropped"])
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(task["outcomes"].items()))
    took = task["seconds"]
    against = task.get("against_default") or {"ratio": 1.0, "low": 1.0, "high": 1.0}
    return (
        f"| {profile.stem} | {task['space']} | {dropped} | {outcomes} | {seconds:.0f} s | {took['screening']:.0f} s | "
        f"{took['compiling_core']:.0f} s | {took['measuring'] / took['screening']:.0%} | {against['ratio']:.3f} "
        f"[{against['low']:.3f}, {against['high']:.3f}] |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--journals", type=Path, help="folder to keep the journals in")
    arguments = parser.parse_args()
    rows = [
        "| profile | space | dropped | outcomes | wall | screening | compiling, all cores | in use | winner/default |",
        "|---" * 9 + "|",
    ]
    for profile in arguments.profiles:
        with tempfile.TemporaryDirectory() as folder:
            seconds, document = run(profile, Path(folder))
            rows += [row(profile, seconds, task) for task in document["tasks"]]
            if arguments.journals:
                shutil.copytree(Path(folder) / "journals", arguments.journals, dirs_exist_ok=True)
        print(rows[-1], flush=True)
    print("\n".join(rows))


if __name__ == "__main__":
    main()
