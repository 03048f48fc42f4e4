"""A device whose kernels take as long as a test says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attnctl._version import __version__
from attnctl.bench.plan import plans
from attnctl.bench.run import run
from attnctl.bench.settings import Settings
from attnctl.gpu.protocol import Cycle, Environment, FinalsReply, Prepared, Result
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.profile.tuned import Entry, Fingerprints, Latency, entry_key, store, tuned_path
from attnctl_kernels.contract import Outcome

DEVICE = "simulated"
PROFILE = """\
schema: 1
family: blocks
problem: {batch_size: 2, seq_len: 1024, num_heads_q: 4, head_dim: 64, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 16, block_kv: 16}
"""
TUNED = {"block_q": 128, "block_kv": 128}


class SimulatedDevice:
    """A :class:`~attnctl.gpu.interfaces.MeasurerLike`. ``times_us`` is by ``block_q``; a text is a failure's reason."""

    compiles = False
    device_count = 1

    def __init__(self, times_us, *, noise=0.005, swings=0.0, throttle=(), seed=58, **environment):
        self.environment = Environment(device_name=DEVICE, device="cpu", arch=None, **environment)
        self.asked = []  # cycles of each process
        self._times_us = times_us
        self._noise, self._swings, self._throttle = noise, swings, throttle
        self._rng = np.random.default_rng(seed)

    def prepare(self, task, cache="cold"):
        return Prepared(density=0.5, flop=2e9, tolerance={}, row_tolerance={}, baseline_error={}, seconds=0)

    def warm_up(self, count):
        pass

    def finals(self, contenders, cycles):
        self.asked.append(cycles)
        times = {each.name: self._times_us[each.candidate.config["block_q"]] for each in contenders}
        failed = {
            name: Result(outcome=Outcome.WRONG_RESULT, reason=time)
            for name, time in times.items()
            if isinstance(time, str)
        }
        true = np.array([time for name, time in times.items() if name not in failed])
        names = [name for name in times if name not in failed]
        level = self._swings * self._rng.integers(0, 2, len(names))
        samples = true * np.exp(level + self._noise * self._rng.standard_normal((cycles if names else 0, len(names))))
        return FinalsReply(
            cycles=tuple(
                Cycle(samples_us=dict(zip(names, row, strict=True)), throttle=self._throttle)
                for row in samples.tolist()
            ),
            failed=failed,
        )


def write_profile(folder: Path, text: str = PROFILE) -> Path:
    path = folder / "demo.yaml"
    path.write_text(text)
    return path


def write_tuned(path: Path, median_us: float, *, config=TUNED, device=DEVICE, cache="cold", **changes):
    """A tuned profile as `tune` writes it, with one entry for the first task."""
    loaded = load(path)
    task = tasks(loaded.profile)[0]
    facts = {
        "family": task.family,
        "version": task.version,
        "arch": task.arch,
        "pass_name": task.pass_name,
        "problem": task.problem,
        "config": config,
        "sparse_block": tuple(config.values()),
        "latency": Latency(median_us=median_us, p20_us=median_us, p80_us=median_us, samples=100, cache=cache),
        "against_default": None,
        "against_incumbent": None,
        "error": {"out": 0.001},
        "num_sms": None,
        "versions": {"attnctl": __version__},
        "fingerprints": Fingerprints(
            problem=entry_key(task, loaded.profile.sparse_block_of(task.pass_name)), rules="unknown"
        ),
    }
    store(tuned_path(path, device), device, [Entry(**facts | changes)])


def benchmark(
    path: Path, device: SimulatedDevice, *, against=("default", "incumbent"), band=None, cycles=50, cache="cold"
):
    """The match of the profile's only problem, and what was said on the way."""
    said = []
    settings = Settings(cycles=cycles, cache=cache, state_dir=path.parent, band=band)
    (plan,) = plans(load(path), device.environment, against)
    return run(plan, str(path), device, settings, said.append), said
