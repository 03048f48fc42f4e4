"""One row for each config of a sweep: what was tried, and what the rules dropped. Also the CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnctl.report._page.recall import Recalled
from attnctl.report._sweep import drop_reason, failure
from attnctl.tune.decide import Comparison
from attnctl.tune.finals import ranked
from attnctl.tune.journal import OutcomeRecord
from attnctl.tune.space import Drop
from attnctl_kernels.contract import Candidate, Outcome, Scalar

BLOCK = "sparse_block"  # the one parameter that is none of the kernel's
DROPPED = "dropped"  # by a rule, before anything was compiled: no outcome
UNTRIED = "not_tried"  # left out by the strategy, or for lack of time
SLOWER = "gave_up"  # ran and was right; timed no further when it was clearly slower


@dataclass(frozen=True, slots=True)
class Row:
    """One config. Times are of the screening; ``ratio`` to the fastest of it, ``finals`` to the baseline."""

    candidate: Candidate
    label: str
    outcome: str
    reason: str = ""
    rule: str = ""
    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    samples: int = 0
    lists_us: float | None = None  # building the block lists
    ratio: float | None = None
    tflops: float | None = None
    finals: Comparison | None = None
    compile_s: float | None = None
    measure_s: float = 0.0
    registers: int | None = None
    local_bytes: int | None = None
    executed_flop: int | None = None
    waste: float | None = None

    @property
    def parameters(self) -> dict[str, Scalar]:
        """The config and, where there is one, the sparse block as ``128x64``."""
        block = self.candidate.sparse_block
        return {**self.candidate.config, **({BLOCK: f"{block[0]}x{block[1]}"} if block else {})}

    @property
    def config(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def timed(self) -> bool:
        return self.median_us is not None


def rows(sweep: Recalled) -> list[Row]:
    """Timed ones first, fastest first; then failures in the order of recording; then what was left out; then drops."""
    ranking = ranked(list(sweep.result.outcomes))
    best_us = ranking[0].result.timing.median_us if ranking and ranking[0].result.timing else None
    tried = [_tried(sweep, each, best_us) for each in sweep.result.outcomes]
    tried.sort(key=lambda row: (row.median_us is None, row.outcome == SLOWER, row.median_us or 0.0))
    known = sweep.recorded.outcomes
    untried = [each for each in sweep.result.space.candidates if each.key not in known]
    return [
        *tried,
        *(Row(each, sweep.label(each), UNTRIED) for each in untried),
        *(_dropped(sweep, each) for each in sweep.result.space.drops),
    ]


def _tried(sweep: Recalled, record: OutcomeRecord, best_us: float | None) -> Row:
    result, found = record.result, sweep.coverage_of(record.candidate)
    timing = result.timing if result.outcome is Outcome.OK else None
    label = sweep.label(record.candidate)
    decision, prepared = sweep.result.decision, sweep.result.prepared
    compiled = result.compiled
    return Row(
        candidate=record.candidate,
        label=label,
        outcome=SLOWER if timing and timing.gave_up else str(result.outcome),
        reason=record.note if result.outcome is Outcome.OK else failure(result),
        median_us=timing.median_us if timing else None,
        p20_us=timing.p20_us if timing else None,
        p80_us=timing.p80_us if timing else None,
        samples=timing.count if timing else 0,
        lists_us=result.lists_us,
        ratio=timing.median_us / best_us if timing and best_us else None,
        tflops=prepared.flop / timing.median_us / 1e6 if timing and prepared and prepared.flop else None,
        finals=decision.vs_incumbent.get(label) if decision else None,
        compile_s=compiled.seconds if compiled else None,
        measure_s=sum(result.seconds.values()),
        registers=compiled.resources.get("registers") if compiled else None,
        local_bytes=compiled.resources.get("local_bytes") if compiled else None,
        executed_flop=found.executed_flop if found else None,
        waste=found.waste if found else None,
    )


def _dropped(sweep: Recalled, drop: Drop) -> Row:
    label = sweep.label(drop.candidate)
    return Row(drop.candidate, label, DROPPED, reason=drop_reason(drop), rule=drop.rule.code)


def parameter_names(found: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in found for name in row.parameters))


# fmt: off
_COLUMNS = (
    "profile", "problem", "pass", "device_name", "label", "outcome", "rule",
    "median_us", "p20_us", "p80_us", "samples", "ratio_to_fastest", "tflops",
    "finals_ratio", "finals_low", "finals_high", "finals_verdict",
    "compile_s", "measure_s", "registers", "local_bytes", "executed_flop", "waste", "reason",
    "lists_us",
)
# fmt: on


def as_csv(sweeps: Sequence[tuple[Recalled, Sequence[Row]]]) -> str:
    """All sweeps below each other; a parameter that a family does not have is empty."""
    names = parameter_names([row for _, found in sweeps for row in found])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"config.{name}" for name in names)])
    for sweep, found in sweeps:
        writer.writerows([*_cells(sweep, row), *(row.parameters.get(name, "") for name in names)] for row in found)
    return text.getvalue()


def _cells(sweep: Recalled, row: Row) -> Iterator[object]:
    header, finals = sweep.header, row.finals
    yield from (header.profile, header.task.problem.slug, header.task.pass_name, header.environment.device_name)
    yield from (row.label, row.outcome, row.rule, row.median_us, row.p20_us, row.p80_us, row.samples or None)
    yield from (row.ratio, row.tflops)
    yield from (finals.ratio, finals.low, finals.high, str(finals.verdict)) if finals else ("", "", "", "")
    yield from (row.compile_s, row.measure_s, row.registers, row.local_bytes, row.executed_flop, row.waste, row.reason)
    yield row.lists_us
