"""A decided task as an entry of the tuned profile."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

from attnctl.profile.tuned import Against, Entry, Fingerprints, Latency
from attnctl.rules.registry import general_rules
from attnctl.tune.decide import Comparison
from attnctl.tune.outcome import TaskResult
from attnctl_kernels.contract import fingerprint
from attnctl_kernels.families import get_family

_DIGITS = 3  # of microseconds
_RATIO_DIGITS = 4


def entry_of(result: TaskResult, key: str) -> Entry:
    """What goes on disk for a task that has a winner."""
    task, winner = result.task, result.winner
    record = next(each for each in result.outcomes if each.candidate == winner)
    timing, check = record.result.timing, record.result.check
    assert winner is not None
    assert timing is not None
    return Entry(
        family=task.family,
        version=task.version,
        arch=task.arch,
        pass_name=task.pass_name,
        problem=task.problem,
        config=winner.config,
        sparse_block=winner.sparse_block,
        latency=Latency(
            median_us=round(timing.median_us, _DIGITS),
            p20_us=round(timing.p20_us, _DIGITS),
            p80_us=round(timing.p80_us, _DIGITS),
            samples=timing.count,
            cache=timing.cache,
        ),
        against_default=_against(result.against_default),
        against_incumbent=_against(result.against_baseline),
        error={name: float(f"{value:.3g}") for name, value in check.error.items()} if check else {},
        num_sms=result.environment.num_sms,
        versions=result.environment.running_versions,
        fingerprints=Fingerprints(problem=key, rules=rules_fingerprint(task.family)),
    )


@cache
def rules_fingerprint(family: str) -> str:
    """Changes with the sources of anything that decides what may run."""
    spec = get_family(family)
    modules = {type(spec).__module__, *(each.check.__module__ for each in (*general_rules(), *spec.rules()))}
    sources = {name: Path(str(sys.modules[name].__file__)).read_bytes() for name in modules}
    return fingerprint({name: hashlib.sha256(source).hexdigest() for name, source in sources.items()})


def _against(comparison: Comparison | None) -> Against | None:
    if comparison is None:
        return None
    return Against(
        ratio=round(comparison.ratio, _RATIO_DIGITS),
        low=round(comparison.low, _RATIO_DIGITS),
        high=round(comparison.high, _RATIO_DIGITS),
        verdict=str(comparison.verdict),
    )
