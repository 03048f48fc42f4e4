"""The same sweep on this machine's own pool and on a Ray cluster of one node: what does Ray cost?

    python benchmarks/ray_overhead.py [PROFILE] [--repeat N]

Needs the extra `ray`. The two take turns, in pairs, each from an empty state folder; every second pair begins with Ray.
Prints a Markdown table; *of local* is the median over the pairs, since a machine drifts by more than the two differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ray.cluster_utils import Cluster
from validate import ATTNCTL, ENVIRON, machine


def seconds(profile: Path, *options: str) -> tuple[float, float]:
    """Wall time of the command, and of its screening."""
    with tempfile.TemporaryDirectory() as folder:
        command = (*ATTNCTL, "tune", str(profile), "--fresh", "--strategy", "exhaustive", "--format", "json")
        environ = {**ENVIRON, "ATTNCTL_STATE_DIR": f"{folder}/state"}
        begun = time.perf_counter()
        done = subprocess.run(
            (*command, "--out", f"{folder}/tuned", *options), env=environ, capture_output=True, text=True, check=False
        )
        wall_s = time.perf_counter() - begun
    if done.returncode:
        sys.exit(done.stderr)
    return wall_s, sum(task["seconds"]["screening"] for task in json.loads(done.stdout)["tasks"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", type=Path, default=Path("profiles/quickstart.yaml"))
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    options = {"local": (), "Ray, one node": ("--executor", "ray", "--ray-address", cluster.address)}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in options}
    try:
        for pair in range(arguments.repeat):
            for name in sorted(options, reverse=bool(pair % 2)):
                runs[name].append(seconds(arguments.profile, *options[name]))
    finally:
        cluster.shutdown()
    print(f"{machine()}; {arguments.profile.name}, {arguments.repeat} pairs, medians\n")
    print("| executor | command | of local | screening | of local |\n|---|---:|---:|---:|---:|")
    for name, each in runs.items():
        wall_s, screening_s = (statistics.median(column) for column in zip(*each, strict=True))
        pairs = zip(each, runs["local"], strict=True)
        shares = [[mine / local for mine, local in zip(*pair, strict=True)] for pair in pairs]
        wall, screening = (statistics.median(column) for column in zip(*shares, strict=True))
        print(f"| {name} | {wall_s:.1f} s | {wall:.3f} | {screening_s:.1f} s | {screening:.3f} |")


if __name__ == "__main__":
    main()
