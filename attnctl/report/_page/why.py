"""Why the winner won: winner, default, incumbent and the closest rival in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnctl.profile.candidate import case_of
from attnctl.report._mask.coverage import waves
from attnctl.report._page.figure import spell
from attnctl.report._page.recall import Recalled
from attnctl.report._page.rows import Row
from attnctl_kernels.families import get_family


@dataclass(frozen=True, slots=True)
class Table:
    heads: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    numeric: bool = False  # all columns but the first are numbers


def contenders(sweep: Recalled, rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by role; one config may have several roles."""
    result, timed = sweep.result, [row for row in rows if row.timed]
    wanted = {"winner": result.winner, "default": result.space.default, "incumbent": result.space.incumbent}
    if not sweep.whole:
        del wanted["incumbent"]  # nobody knows who was in use
    found = {
        role: row for role, candidate in wanted.items() for row in timed if candidate and row.candidate == candidate
    }
    rivals = [row for row in timed if row not in found.values()]
    if rivals:
        found["next"] = min(rivals, key=lambda row: row.finals.ratio if row.finals else 1e9 + (row.ratio or 0.0))
    return found


def why(sweep: Recalled, rows: Sequence[Row]) -> Table:
    """Rows of the table are what could explain the difference: tiles, wasted work, waves, resources."""
    roles: dict[int, list[str]] = {}
    shown: dict[int, Row] = {}
    for role, row in contenders(sweep, rows).items():
        roles.setdefault(id(row), []).append(role)
        shown[id(row)] = row
    columns = list(shown.values())
    if not columns:
        return Table((), ())
    lines: dict[str, list[str]] = {}
    for index, row in enumerate(columns):
        for name, value in _facts(sweep, row).items():
            lines.setdefault(name, [""] * len(columns))[index] = value
    heads = (
        "",
        *(
            f"{', '.join(roles[id(row)])}{f' ({row.label})' if row.label not in roles[id(row)] else ''}"
            for row in columns
        ),
    )
    return Table(heads, tuple((name, *cells) for name, cells in lines.items()), numeric=True)


def _facts(sweep: Recalled, row: Row) -> dict[str, str]:
    facts = {name: spell(value) for name, value in row.parameters.items()}
    facts["median, screening"] = f"{row.median_us:,.1f} us"
    if row.finals:
        facts["finals, of the baseline"] = f"{row.finals.ratio:.3f} [{row.finals.low:.3f}, {row.finals.high:.3f}]"
    if row.tflops:
        facts["effective TFLOP/s"] = f"{row.tflops:.3g}"
    case = case_of(sweep.case, row.candidate)
    if found := sweep.coverage_of(row.candidate):
        facts["blocks visited"] = f"{found.visited:,} of {found.blocks:,}"
        facts["partial blocks"] = f"{found.partial:,}"
        facts["operations wasted"] = f"{found.waste:.1%}"
    if spread := waves(case):
        facts["waves"] = f"{spread.count:.1f}, last fills {spread.last:.0%}"
    for each in get_family(case.family).resources(case):
        facts[each.name] = f"{each.used:,} of {each.limit:,} {each.unit}"
    if row.registers is not None:
        facts["registers, compiled"] = f"{row.registers}"
    if row.local_bytes is not None:
        facts["spilled, compiled"] = f"{row.local_bytes} bytes"
    return facts
