"""What `attnctl validate` and `attnctl --help` cost, cold, against `python -c "import torch"`.

    python benchmarks/validate.py [PROFILE] [--repeat N]

The commands take turns, so that all see the same machine. Prints a Markdown table: median wall and processor time,
their shares of importing torch, and the largest resident set.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

PROFILE = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 2, seq_len: 8192, num_heads_q: 16, head_dim: 128, dtype: bfloat16}
mask: {pattern: history_candidate, history_len: 6144}
sparse_block: [128, 128]
config:
  forward: {tile_m: 128, tile_n: 128, mma_pv_is_rs: true, intra_wg_overlap: true}
"""
ATTNCTL = (sys.executable, "-m", "attnctl")


class Run(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mb: float


def once(command: tuple[str, ...]) -> Run:
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}\n{error.decode(errors='replace')}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak_bytes / 1e6)


def machine() -> str:
    """The processor's model, its cores in use, and today's date."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, Python {platform.python_version()}, {datetime.now().astimezone():%Y-%m-%d}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", help="default: one fa4 problem")
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profile = arguments.profile or str(Path(folder, "profile.yaml"))
        if not arguments.profile:
            Path(profile).write_text(PROFILE, encoding="utf-8")
        commands = {
            'python -c "import torch"': (sys.executable, "-c", "import torch"),
            "attnctl validate PROFILE": (*ATTNCTL, "validate", profile),
            "attnctl --help": (*ATTNCTL, "--help"),
        }
        compare(commands, arguments.repeat)


def compare(commands: dict[str, tuple[str, ...]], repeat: int) -> None:
    """Run them in turns, so that all see the same machine, and print a table of shares of the first."""
    for command in commands.values():
        once(command)  # fills the disk cache, and __pycache__
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            runs[name].append(once(command))
    print(f"{machine()}; median of {repeat}\n")
    print("| command | wall time | of importing torch | processor time | of importing torch | peak memory |")
    print("|---|---:|---:|---:|---:|---:|")
    torch_wall_s, torch_cpu_s = None, None
    for name, each in runs.items():
        wall_s = statistics.median(run.wall_s for run in each)
        cpu_s = statistics.median(run.cpu_s for run in each)
        torch_wall_s, torch_cpu_s = torch_wall_s or wall_s, torch_cpu_s or cpu_s
        shares = wall_s / torch_wall_s, cpu_s / torch_cpu_s
        peak_mb = max(run.peak_mb for run in each)
        print(f"| `{name}` | {wall_s:.3f} s | {shares[0]:.2f} | {cpu_s:.3f} s | {shares[1]:.2f} | {peak_mb:.0f} MB |")


if __name__ == "__main__":
    main()
