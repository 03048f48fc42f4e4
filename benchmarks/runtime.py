"""What a program pays for its config: `attnctl which` cold, and `attnctl.load_config` in one process.

    python benchmarks/runtime.py [PROFILE] [--device-name NAME] [--repeat N]

The commands take turns with `python -c "import torch"`. Prints two Markdown tables.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from validate import ATTNCTL, machine, once

CALLS = """
import sys, time, warnings
warnings.simplefilter("ignore")
import attnctl
profile, device_name, length = sys.argv[1], sys.argv[2], int(sys.argv[3])

def seconds(seqlen):
    begun = time.process_time()
    attnctl.load_config(profile, seqlen_q=seqlen, device_name=device_name)
    return time.process_time() - begun

first = seconds(length)
again = seconds(length)
others = [seconds(length + 128 * step) for step in range(1, 9)]
heavy = [name for name in ("torch", "jax", "numpy", "typer", "rich") if name in sys.modules]
print(first, again, max(others), len(heavy))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", default="profiles/ranker-8k.yaml")
    parser.add_argument("--device-name", default="nvidia_h200")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    which = (*ATTNCTL, "which", arguments.profile, "--device-name", arguments.device_name)
    script = (sys.executable, "-c", CALLS, arguments.profile, arguments.device_name, str(arguments.length))
    torch = (sys.executable, "-c", "import torch")
    for command in (torch, which, script):
        once(command)  # fills the disk cache, and __pycache__
    colds, torches, calls = [], [], []
    for _ in range(arguments.repeat):
        torches.append(once(torch))
        colds.append(once(which))
        done = subprocess.run(script, capture_output=True, text=True, check=True)
        calls.append([float(word) for word in done.stdout.split()])
    walls = [statistics.median(run.wall_s for run in runs) for runs in (torches, colds)]
    processor = [statistics.median(run.cpu_s for run in runs) for runs in (torches, colds)]
    print(f"{machine()}; median of {arguments.repeat}\n")
    print(
        "| command | wall time | of importing torch | processor time | of importing torch |\n|---|---:|---:|---:|---:|"
    )
    for name, wall_s, cpu_s in zip(
        ('python -c "import torch"', "attnctl which PROFILE"), walls, processor, strict=True
    ):
        shares = wall_s / walls[0], cpu_s / processor[0]
        print(f"| `{name}` | {wall_s:.3f} s | {shares[0]:.2f} | {cpu_s:.3f} s | {shares[1]:.2f} |")
    first, again, other, heavy = (statistics.median(column) for column in zip(*calls, strict=True))
    print("\n| `attnctl.load_config` in one process | processor time |\n|---|---:|")
    print(f"| the first call, with its imports | {1e3 * first:.0f} ms |")
    print(f"| the same call again | {1e3 * again:.3f} ms |")
    print(f"| another length, the slowest of eight | {1e3 * other:.2f} ms |")
    print(f"\nFrameworks, numpy, typer and rich imported: {heavy:.0f}")


if __name__ == "__main__":
    main()
