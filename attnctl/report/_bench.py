"""What `attnctl bench` found, as text, JSON and workflow commands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from attnctl.bench.gate import GateVerdict
from attnctl.bench.result import Match, Row
from attnctl.report import github
from attnctl.report._table import table
from attnctl.rules.finding import Finding
from attnctl_kernels.contract import Candidate
from attnctl_kernels.rule import Severity

JSON_VERSION = 1
_HEADER = ("config", "median us", "p20", "p80", "TFLOP/s", "ratio", "95 % interval", "verdict")


def text(match: Match) -> Iterator[str]:
    """The table of one match. A ratio is the time of the first row over the time of its own row."""
    head = match.rows[0]
    density = "" if match.density is None else f", {match.density:.1%} of the pairs visible"
    yield f"{match.profile}: {match.problem} {match.pass_name} on {match.device_name}, {match.cache} cache{density}"
    yield ""
    rows = [_cells(row, head) for row in match.rows if row.latency]
    if rows:
        yield from table([_HEADER, *rows], right=(1, 2, 3, 4, 5))
    yield from (f"{row.name}: {row.note}" for row in match.rows if row.note)
    yield ""
    yield from (f"{row.name} = {row.candidate}" for row in match.rows if row.candidate)
    compared = next((row.comparison for row in match.rows if row.comparison and row.interleaved), None)
    if compared:
        yield (
            f"ratio = time of {head.name} / time of the row. {match.cycles} cycles in {match.processes} processes, "
            f"noise floor {compared.floor:.1%}, margin {compared.margin:.1%}"
        )
    if any(row.comparison and not row.interleaved for row in match.rows):
        yield "another family runs in processes of its own: its interval comes from one median per process"
    if match.unstable:
        yield f"the machine is unstable: {match.dropped:.0%} of the cycles were dropped"
    yield from (f"note: {note}" for note in match.notes)
    yield from (f"gate against {each.against}: {each.verdict}: {each.reason}" for each in match.gate)


def as_json(matches: Sequence[Match]) -> dict[str, Any]:
    """Stable: fields are only ever added. Numbers that are not finite are null."""
    return {"version": JSON_VERSION, "matches": [_plain(asdict(match)) for match in matches]}


def commands(match: Match, place: tuple[int, int]) -> Iterator[str]:
    """Workflow commands for what fails or cannot be told, at ``place`` of the profile."""
    head = match.rows[0]
    if head.failed:
        yield _annotation(match, place, Severity.ERROR, "config-fails", f"{head.name} fails: {head.note}")
    for each in match.gate:
        if each.verdict is not GateVerdict.PASS:
            failed = each.verdict is GateVerdict.FAIL
            severity = Severity.ERROR if failed else Severity.WARNING
            name = "regression" if failed else "gate-inconclusive"
            yield _annotation(match, place, severity, name, f"{head.name} against {each.against}: {each.reason}")


def _annotation(match: Match, place: tuple[int, int], severity: Severity, name: str, fault: str) -> str:
    line, column = place
    message = f"{match.problem} {match.pass_name} on {match.device_name}: {fault}"
    return github.command(Finding("GATE", name, severity, match.profile, line, column, "gate", message))


def _cells(row: Row, head: Row) -> tuple[str, ...]:
    assert row.latency is not None
    latency = row.latency
    times = [f"{value:.1f}" for value in (latency.median_us, latency.p20_us, latency.p80_us)]
    speed = "-" if row.tflops is None else _significant(row.tflops)
    if row.comparison is None:
        return (row.name, *times, speed, "1" if row is head else "-", "", "")
    found = row.comparison
    interval = f"[{found.low:.3f}, {found.high:.3f}]" if math.isfinite(found.high) else "unknown"
    return (row.name, *times, speed, f"{found.ratio:.3f}", interval, str(found.verdict))


def _significant(value: float) -> str:
    """Three digits, without an exponent: a processor and a GPU differ by a factor of 10,000."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _plain(value: Any) -> Any:
    if isinstance(value, Candidate):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
