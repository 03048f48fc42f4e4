"""What a benchmark found."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from attnctl.bench.gate import GateVerdict
from attnctl.gpu.protocol import CachePolicy
from attnctl.tune.decide import Comparison
from attnctl_kernels.contract import Candidate, PassName


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one call, over the good cycles of all processes."""

    median_us: float
    p20_us: float
    p80_us: float
    samples: int

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> Latency:
        cuts = statistics.quantiles(samples_us, n=10, method="inclusive") if len(samples_us) > 1 else [*samples_us] * 9
        return cls(statistics.median(samples_us), cuts[1], cuts[7], len(samples_us))


@dataclass(frozen=True, slots=True)
class Row:
    """One config. ``comparison`` is the time of the first row over the time of this one."""

    name: str  # "tuned", "profile", "default", "incumbent", or a family
    family: str
    candidate: Candidate | None
    latency: Latency | None = None
    tflops: float | None = None  # effective: only the operations that the mask needs
    comparison: Comparison | None = None
    interleaved: bool = True  # False: another family, compared by the medians of processes that ran in turn
    note: str = ""  # why there is no number
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Gated:
    """The gate's judgement against one baseline."""

    against: str
    band: float
    verdict: GateVerdict
    reason: str
    comparison: Comparison | None = None  # None: there was nothing to compare with


@dataclass(frozen=True, slots=True)
class Match:
    """One problem and pass of one profile. The first row is what is on disk."""

    profile: str
    problem: str
    pass_name: PassName
    device_name: str
    cache: CachePolicy
    rows: tuple[Row, ...]
    density: float | None = None  # visible pairs over all pairs
    processes: int = 0
    cycles: int = 0  # in all processes together
    dropped: float = 0.0
    unstable: bool = False
    notes: tuple[str, ...] = ()
    gate: tuple[Gated, ...] = ()
