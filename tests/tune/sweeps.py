"""Profiles, recorded sweeps and tool processes for the tests of tuning."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Check, Contender, Cycle, Environment, Prepared, Result, Timing
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import FinalsRecord, Header, Journal, OutcomeRecord, PreparedRecord
from attnctl.tune.progress import Progress
from attnctl.tune.run import Options, Tuning
from attnctl_kernels.contract import Outcome

BLOCKS = """\
schema: 1
family: blocks
problem: {batch_size: 1, seq_len: 128, num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 16, block_kv: 16}
search:
  forward: {block_q: [16, 64], block_kv: [16, 64, 128]}
"""

ENVIRONMENT = Environment(
    device_name="nvidia_h200", device="cuda:0", arch="sm_90", uuid="GPU-1", num_sms=132, versions={"kernel": "1"}
)
PREPARED = Prepared(density=0.5, flop=1e6, tolerance={}, baseline_error={}, seconds=0.1)


def profile(folder, text=BLOCKS, name="p.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def ok(median_us, spread=0.001, count=40, seed=0):
    """A right candidate whose samples scatter by ``spread`` around a median."""
    rng = random.Random(f"{median_us} {seed}")
    samples = tuple(sorted(median_us * (1 + rng.uniform(-spread, spread)) for _ in range(count)))
    timing = Timing(
        median_us=median_us,
        p20_us=samples[count // 5],
        p80_us=samples[4 * count // 5],
        min_us=samples[0],
        count=count,
        samples_us=samples,
        cache="cold",
    )
    return Result(outcome=Outcome.OK, timing=timing, check=Check(error={"out": 1e-7}, checked_fraction=1.0))


def bad(outcome=Outcome.WRONG_RESULT, reason="out is wrong"):
    return Result(outcome=outcome, reason=reason)


@contextmanager
def file_size_limit(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Told(Progress):
    """Remembers what a user would have read."""

    def __init__(self):
        self.messages = []
        self.outcomes = []

    def say(self, message):
        self.messages.append(message)

    def outcome(self, candidate, result, note=""):
        self.outcomes.append((candidate, result, note))


def tuning(path, progress=None, **options):
    options.setdefault("deadlines", Deadlines(first_call=4, memory_bytes=768 << 20))
    return Tuning(load(path), Options(**options), progress or Told(), Interrupts())


def record(path, journal, result_of, environment=ENVIRONMENT, finals=()):
    """A journal of the (only) task of the profile at ``path``: ``result_of(candidate)`` says what happened."""
    (task,) = tasks(load(path).profile)
    (space,) = tuning(path).spaces()
    header = Header(profile=path.stem, task=task, space="", rules="", cache="cold", environment=environment)
    written = Journal.create(journal, header)
    written.append(PreparedRecord(prepared=PREPARED))
    for candidate in space.candidates:
        written.append(OutcomeRecord(candidate=candidate, result=result_of(candidate)))
    for each in finals:
        written.append(each)
    written.close()
    return journal


def finals_record(space, times_us, cycles=60, seed=0, **cycle):
    """One process of finals with everything in ``times_us`` (candidate key -> median), the incumbent twice."""
    rng = random.Random(seed)
    by_key = {each.key: each for each in space.candidates}
    slots = [(key, space.labels[key]) for key in times_us]
    slots.append((space.incumbent.key, "again"))
    return FinalsRecord(
        contenders=tuple(Contender(name=name, candidate=by_key[key]) for key, name in slots),
        cycles=tuple(
            Cycle(samples_us={name: times_us[key] * rng.uniform(0.999, 1.001) for key, name in slots}, **cycle)
            for _ in range(cycles)
        ),
    )


class Tool:
    """``attnctl`` in a process of its own, in ``folder``."""

    def __init__(self, folder, *arguments):
        self.folder = Path(folder)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attnctl", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, seconds=250):
        """Exit code, stdout, stderr."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"the tool did not end\n{out}\n{err}") from None
        return self.process.returncode, out, err

    def wait_for_outcomes(self, count, seconds=120):
        """Until the journal holds ``count`` outcomes."""
        end = time.monotonic() + seconds
        while sum(len(outcome_lines(path)) for path in journals(self.folder)) < count:
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{count} outcomes did not come\n{self.process.communicate()}")
            time.sleep(0.02)


def journals(folder):
    return sorted(path for path in folder.glob(".attnctl/journals/*/*/*.jsonl") if not path.suffixes[:-1])


def outcome_lines(path):
    return [line for line in path.read_bytes().splitlines(keepends=True) if b'"record":"outcome"' in line]


def workers():
    """Processes of this machine that are workers of tools in these tests' sessions."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"attnctl.worker" in words:
            found.append((int(path.parent.name), words))
    return found
