"""What a call of a device's actor costs on this machine: nothing is measured there, so this is Ray's own share.

    python benchmarks/ray_call.py [--calls N]

Needs the extra `ray`. `ray_overhead.py` compares whole sweeps.
"""

from __future__ import annotations

import argparse
import statistics
import time

import ray
from validate import machine

from attnctl.cluster.actors import DeviceActor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    arguments = parser.parse_args()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    actor = ray.remote(DeviceActor).options(num_cpus=1).remote(None)
    ray.get(actor.call.remote("__class__"))  # starts the process
    times_ms = []
    for _ in range(arguments.calls):
        begun = time.perf_counter()
        ray.get(actor.call.remote("__class__"))
        times_ms.append(1e3 * (time.perf_counter() - begun))
    cuts = statistics.quantiles(times_ms, n=10)
    print(f"{machine()}: median {statistics.median(times_ms):.2f} ms, p10 {cuts[0]:.2f}, p90 {cuts[8]:.2f}")


if __name__ == "__main__":
    main()
