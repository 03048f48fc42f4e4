"""Finals as a noisy machine would give them, with known true times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnctl.gpu.protocol import Cycle

AA = ("incumbent", "incumbent again")


@dataclass(frozen=True)
class Noise:
    sample: float = 0.005  # standard deviation of one sample, as a fraction
    drift: float = 0.03  # of all contenders together, from process to process
    slot: float = 0.0  # how much longer the last slot of a cycle takes than the first
    tails: bool = False  # Student t with three degrees of freedom, and one sample in fifty three times as long
    memory: float = 0.0  # correlation of neighbouring cycles
    bimodal: float = 0.0  # each contender lands on one of two levels per process, this far apart


def simulate(
    rng: np.random.Generator,
    times_us: dict[str, float],
    noise: Noise | None = None,
    *,
    processes: int = 3,
    cycles: int = 50,
) -> list[list[Cycle]]:
    """Cycles of the contenders in ``times_us`` and of the incumbent's second slot."""
    noise = noise or Noise()
    true = {**times_us, AA[1]: times_us[AA[0]]}
    return [_process(rng, true, noise, cycles) for _ in range(processes)]


def _process(rng: np.random.Generator, true: dict[str, float], noise: Noise, cycles: int) -> list[Cycle]:
    count = len(true)
    level = noise.drift * rng.standard_normal() + noise.bimodal * rng.integers(0, 2, count)
    fresh = rng.standard_t(3, (cycles, count)) / np.sqrt(3) if noise.tails else rng.standard_normal((cycles, count))
    state, states = fresh[0], []
    for row in fresh:
        state = noise.memory * state + np.sqrt(1 - noise.memory**2) * row
        states.append(state)
    slots = np.linspace(0, noise.slot, count)
    orders = [np.roll(np.arange(count), -cycle)[:: -1 if cycle % 2 else 1] for cycle in range(cycles)]
    log_times = np.log(list(true.values())) + level + noise.sample * np.array(states) + slots[np.argsort(orders)]
    if noise.tails:
        log_times += np.log(3) * (rng.random((cycles, count)) < 0.02)
    return [Cycle(samples_us=dict(zip(true, row, strict=True))) for row in np.exp(log_times).tolist()]
