"""What `attnctl validate` costs, against `python -c "import torch"` and against `check-jsonschema` on the same files.

    python benchmarks/validate.py [--repeat N] [--problems N ...] [--family fa4|blocks] [--check-jsonschema PATH]

First one profile, cold. Then N problems in one process: files of up to 10,000 lengths, held against all rules of the
family, and by check-jsonschema against the schema alone. The commands take turns, so that all see the same machine.
Prints two Markdown tables: median wall and processor time, and the largest resident set.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

PROFILES = {
    "fa4": """\
schema: 1
family: fa4
arch: sm_90
problem: {{batch_size: 2, seq_len: {lengths}, num_heads_q: {heads}, head_dim: 128, dtype: bfloat16}}
mask: {{pattern: {mask}}}
sparse_block: [128, 128]
config:
  forward: {{tile_m: 128, tile_n: 128, mma_pv_is_rs: true, intra_wg_overlap: true}}
""",
    "blocks": """\
schema: 1
family: blocks
problem: {{batch_size: 2, seq_len: {lengths}, num_heads_q: {heads}, head_dim: 128, dtype: bfloat16}}
mask: {{pattern: {mask}}}
sparse_block: [128, 128]
config:
  forward: {{block_q: 64, block_kv: 64}}
""",
}
ATTNCTL = (sys.executable, "-m", "attnctl")
TORCH = (sys.executable, "-c", "import torch")
SCHEMA = Path(__file__).parents[1] / "attnctl" / "profile" / "schema.json"
ENVIRON = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as installed: pip compiles what it installs
LENGTHS_PER_FILE = 10_000  # as many as a profile may list


class Run(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mb: float


def once(command: Sequence[str]) -> Run:
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command[:6])}: exit code {process.returncode}\n{error.decode(errors='replace')}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak_bytes / 1e6)


def medians(commands: Mapping[str, Sequence[str]], repeat: int) -> dict[str, Run]:
    """In turns, after a round that fills the disk cache and `__pycache__`."""
    for command in commands.values():
        once(command)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            runs[name].append(once(command))
    return {
        name: Run(
            statistics.median(each.wall_s for each in all_of_it),
            statistics.median(each.cpu_s for each in all_of_it),
            max(each.peak_mb for each in all_of_it),
        )
        for name, all_of_it in runs.items()
    }


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


def write_problems(folder: Path, family: str, count: int) -> list[str]:
    """As many files as it takes, each with another number of heads; every second length is ragged."""
    paths = []
    for first in range(0, count, LENGTHS_PER_FILE):
        numbers = range(min(LENGTHS_PER_FILE, count - first))
        lengths = [64 * (1 + number // 2) + number % 2 for number in numbers]
        heads = 1 + first // LENGTHS_PER_FILE
        path = folder / f"{family}-{count}-{first}.yaml"
        path.write_text(PROFILES[family].format(lengths=lengths, heads=heads, mask="causal"), encoding="utf-8")
        paths.append(str(path))
    return paths


def one_profile(folder: Path, schema_checker: Sequence[str], repeat: int) -> None:
    path = folder / "profile.yaml"
    mask = "history_candidate, history_len: 6144"
    path.write_text(PROFILES["fa4"].format(lengths=8192, heads=16, mask=mask), encoding="utf-8")
    commands = {
        'python -c "import torch"': TORCH,
        "attnctl validate PROFILE": (*ATTNCTL, "validate", str(path)),
        "attnctl --help": (*ATTNCTL, "--help"),
    }
    if schema_checker:
        commands["check-jsonschema PROFILE"] = (*schema_checker, str(path))
    print_shares(medians(commands, repeat))


def print_shares(found: Mapping[str, Run]) -> None:
    """A Markdown table; the first command is what the others are held to."""
    base = next(iter(found.values()))
    print("| command | wall time | of importing torch | processor time | of importing torch | peak memory |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, run in found.items():
        shares = run.wall_s / base.wall_s, run.cpu_s / base.cpu_s
        times = f"{run.wall_s:.3f} s | {shares[0]:.2f} | {run.cpu_s:.3f} s | {shares[1]:.2f}"
        print(f"| `{name}` | {times} | {run.peak_mb:.0f} MB |")


def many_problems(folder: Path, schema_checker: Sequence[str], repeat: int, family: str, counts: Sequence[int]) -> None:
    print("\n| problems | files | command | wall time | processor time | per problem | peak memory |")
    print("|---:|---:|---|---:|---:|---:|---:|")
    for count in counts:
        paths = write_problems(folder, family, count)
        commands: dict[str, Sequence[str]] = {"attnctl validate": (*ATTNCTL, "validate", *paths)}
        if schema_checker:
            commands["check-jsonschema"] = (*schema_checker, *paths)
        for name, run in medians(commands, repeat).items():
            each = f"{run.cpu_s / count * 1e6:.0f} us"
            times = f"{run.wall_s:.2f} s | {run.cpu_s:.2f} s | {each} | {run.peak_mb:.0f} MB"
            print(f"| {count:,} | {len(paths)} | `{name}` | {times} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--problems", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--family", choices=sorted(PROFILES), default="fa4")
    parser.add_argument("--check-jsonschema", default=shutil.which("check-jsonschema") or "", metavar="PATH")
    arguments = parser.parse_args()
    checker = arguments.check_jsonschema
    schema_checker = (checker, "--schemafile", str(SCHEMA)) if checker else ()
    if not checker:
        print("check-jsonschema is not there: pip install check-jsonschema", file=sys.stderr)
    print(f"{machine()}; median of {arguments.repeat}\n")
    with tempfile.TemporaryDirectory() as folder:
        one_profile(Path(folder), schema_checker, arguments.repeat)
        many_problems(Path(folder), schema_checker, arguments.repeat, arguments.family, arguments.problems)


if __name__ == "__main__":
    main()
