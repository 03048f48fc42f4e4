"""Feed the loader, the message matcher and the layout readers with broken inputs.

    python tests/fuzz/fuzz.py [profile|message|layout ...] [--count N] [--seed S]

Each target gets N inputs. An exception, an input that takes longer than 10 s, or memory that grows stops the run with
exit code 1; the input is left in `tests/fuzz/found`. Prints a line per target: inputs, seconds, memory, answers.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fuzz_mutate import Mutator
from fuzz_targets import EXPECTED, KEPT, TARGETS, Target

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # files are written by the million
KEPT_INPUTS = [(name, path) for name in TARGETS for path in sorted((KEPT / name).glob("*"))]
FOUND = Path(__file__).parent / "found"
SECONDS = 10  # for one input; what is checked takes milliseconds
MOST_KEPT = 2000  # inputs with an answer of their own
WARM = 5  # the first fifth fills caches and the pool
GROWTH_MB = 32.0


class Ran(NamedTuple):
    inputs: int
    seconds: float
    slowest: float
    warm_mb: float
    end_mb: float
    answers: int


class Broken(Exception):
    """What the input did is the cause."""

    def __init__(self, data: bytes, reason: str) -> None:
        super().__init__(reason)
        self.data = data


def fuzz(target: Target, count: int, seed: int, folder: Path) -> Ran:
    """Run ``count`` inputs: the seeds first, then what is made of them and of what was new."""
    mutator = Mutator(seed, target.tokens)
    draw = mutator.random
    seeds = list(target.seeds())
    pool, answers = list(seeds), set()
    begun, slowest, warm_mb = time.monotonic(), 0.0, 0.0
    for number in range(count):
        data = seeds[number] if number < len(seeds) else mutator.mutate(draw.choice(pool), draw.choice(pool))
        started = time.monotonic()
        answer = _answer(target, data, folder)
        slowest = max(slowest, time.monotonic() - started)
        if answer not in answers and len(answers) < MOST_KEPT:
            answers.add(answer)
            pool.append(data)
        if number == count // WARM:
            warm_mb = resident_mb()
    ran = Ran(count, time.monotonic() - begun, slowest, warm_mb, resident_mb(), len(answers))
    if ran.end_mb > ran.warm_mb + GROWTH_MB:
        raise Broken(b"", f"memory grew from {ran.warm_mb:.0f} to {ran.end_mb:.0f} MB")
    return ran


def _answer(target: Target, data: bytes, folder: Path) -> str:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return target.run(data, folder)
    except EXPECTED as error:
        return f"{type(error).__name__}: {error}"[:40]
    except Exception as error:
        raise Broken(data, f"{type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def resident_mb() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def watched() -> Iterator[None]:
    """Where an input takes too long, raise."""
    before = signal.signal(signal.SIGALRM, _late)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def _late(*_: object) -> None:
    raise TimeoutError(f"not done after {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.targets or TARGETS:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder, watched():
            try:
                ran = fuzz(TARGETS[name], arguments.count, arguments.seed, Path(folder))
            except Broken as broken:
                FOUND.mkdir(exist_ok=True)
                kept = FOUND / f"{name}-{arguments.seed}"
                kept.write_bytes(broken.data)
                traceback.print_exception(broken)
                sys.exit(f"{name}: {broken}; the input is {kept}")
        print(
            f"{name}: {ran.inputs:,} inputs in {ran.seconds:.0f} s, slowest {ran.slowest:.2f} s, "
            f"{ran.warm_mb:.0f} MB after a fifth, {ran.end_mb:.0f} MB at the end, {ran.answers} different answers",
            flush=True,
        )


if __name__ == "__main__":
    main()
