"""How long JAX's attention takes by the worker's events, by CUPTI's record of its kernels and by the wall clock.

    python benchmarks/jax_timing.py profiles/dense-4k-d128.yaml

The kernels' sum leaves the gaps between them out; the wall clock has all that the host does.
"""

import statistics
import sys
import time
from pathlib import Path

import torch

from attnctl.gpu.protocol import Hello, Prepare
from attnctl.profile.candidate import profile_candidate
from attnctl.profile.load import load
from attnctl.profile.problems import cases, tasks
from attnctl.worker.session import Session
from attnctl_kernels.families import get_family

CALLS = 64


def main(path: str) -> None:
    loaded = load(Path(path))
    family = get_family(loaded.profile.family)
    launcher = family.launcher()
    session = Session(family, launcher, lambda *_: None)
    session.hello(Hello(family=family.name, arch="sm_90", device="cuda:0"))
    for task, case in zip(tasks(loaded.profile), cases(loaded.profile), strict=True):
        session.prepare(Prepare(task=task))
        setup = session._attempt.setup  # noqa: SLF001
        call = setup.bind(launcher, profile_candidate(case))
        device = setup.device
        for _ in range(5):
            call.run()
        device.synchronize()
        for cache in ("cold", "warm"):
            events = statistics.median(device.sample_us([call.run] * CALLS, cache))
            print(f"{task.pass_name}: events, {cache} L2, {CALLS} calls: median {events:.1f} us")

        begun = time.perf_counter()
        for _ in range(CALLS):
            call.run()
        queued = time.perf_counter() - begun
        device.synchronize()
        wall = time.perf_counter() - begun
        print(f"{task.pass_name}: wall clock {wall / CALLS * 1e6:.1f} us, of it the host {queued / CALLS * 1e6:.1f} us")

        trace = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        with trace:
            call.run()
            device.synchronize()
        kernels = [(each.name, each.device_time) for each in trace.events() if each.device_time]
        print(f"{task.pass_name}: CUPTI {sum(us for _, us in kernels):.1f} us")
        for name, us in kernels:
            print(f"  {us:8.1f} us {name[:60]}")


if __name__ == "__main__":
    main(sys.argv[1])
