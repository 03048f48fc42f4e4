"""What does it take to start the workers of a sweep, forked from one process or one by one?

    python benchmarks/workers.py [--family fa4] [--arch sm_90] [--count 8]

Starts as many compile workers as asked for, which need no GPU, until each has answered its first request. Prints
Markdown: wall and processor time, of all processes together.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.place import WorkerPlace
from attnctl.gpu.protocol import Hello
from attnctl.gpu.template import FORK_VARIABLE


def seconds(hello: Hello, count: int, *, forked: bool) -> tuple[float, float]:
    """Wall and processor time."""
    os.environ[FORK_VARIABLE] = "1" if forked else "0"
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, WorkerPlace(Path(folder), "bench") as place:
        place.prefer_forks(hello, Deadlines())
        workers = [place.worker(hello, Deadlines()) for _ in range(count)]
        with ThreadPoolExecutor(count) as threads:
            for worker in workers:
                worker.spawn()
            list(threads.map(lambda worker: worker.start(), workers))
        wall_s = time.perf_counter() - begun
        for worker in workers:
            worker.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="fa4")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--count", type=int, default=8)
    arguments = parser.parse_args()
    hello = Hello(family=arguments.family, arch=arguments.arch, device="none")
    print("| family | workers | started | wall | processor time |", "|---" * 5 + "|", sep="\n")
    for forked in (False, True):
        wall_s, cpu_s = seconds(hello, arguments.count, forked=forked)
        how = "forked" if forked else "one by one"
        print(f"| {arguments.family} | {arguments.count} | {how} | {wall_s:.1f} s | {cpu_s:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
