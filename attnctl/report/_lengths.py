"""Which lengths a profile supports, as a table: runs of supported lengths; gaps between them, with the reason."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from attnctl.report._table import table
from attnctl.rules.finding import Finding
from attnctl_kernels.rule import Severity

MOST_RUNS = 6  # that one line lists
MOST_REASONS = 3  # that one gap lists in full

Findings = tuple[Finding, ...]
Gap = list[int]


def supported(findings: Findings) -> bool:
    return not any(each.severity is Severity.ERROR for each in findings)


def length_table(path: str, by_length: Mapping[int, Findings]) -> Iterator[str]:
    """Lines: how many lengths work, which, and per kind of gap its first lengths, nearest that work, and reasons."""
    lengths = sorted(by_length)
    good = [each for each in lengths if supported(by_length[each])]
    yield f"{path}: {len(good)} of {len(lengths)} lengths from {lengths[0]} to {lengths[-1]} supported"
    rows = []
    if good:
        rows.append(("supported", str(len(good)), _runs(good), ""))
    reasons: dict[int, Findings] = {}
    for gaps in _alike(lengths, by_length).values():
        first = gaps[0]
        count = sum(map(len, gaps))
        row = len(rows)
        reasons[row] = by_length[first[0]]
        rows.append(("not", str(count), _spans(gaps), _nearest(first, good)))
    for row, text in enumerate(table(rows, right=(1,))):
        yield f"  {text}"
        yield from (f"    {each}" for each in _reasons(reasons.get(row, ())))


def _alike(lengths: Sequence[int], by_length: Mapping[int, Findings]) -> dict[tuple[str, ...], list[Gap]]:
    """Neighbours that break the same rules are one gap; gaps that break the same rules belong together."""
    alike: dict[tuple[str, ...], list[Gap]] = {}
    for codes, run in groupby(lengths, lambda each: _codes(by_length[each])):
        if codes:
            alike.setdefault(codes, []).append(list(run))
    return alike


def _codes(findings: Findings) -> tuple[str, ...]:
    return tuple(sorted({each.code for each in findings if each.severity is Severity.ERROR}))


def _runs(lengths: Sequence[int]) -> str:
    """``128 to 8192 step 128``: evenly spaced lengths as one run."""
    runs: list[list[int]] = []
    for length in lengths:
        run = runs[-1] if runs else []
        if len(run) > 1 and length - run[-1] != run[1] - run[0]:
            run = []
        if run:
            run.append(length)
        else:
            runs.append([length])
    return _listed([_run(each) for each in runs])


def _run(run: Sequence[int]) -> str:
    if len(run) < 3:
        return ", ".join(map(str, run))
    step = run[1] - run[0]
    return f"{run[0]} to {run[-1]}" + (f" step {step}" if step > 1 else "")


def _spans(gaps: Sequence[Gap]) -> str:
    return _listed([f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in gaps])


def _listed(parts: Sequence[str]) -> str:
    if len(parts) <= MOST_RUNS:
        return ", ".join(parts)
    left = len(parts) - MOST_RUNS
    return f"{', '.join(parts[: MOST_RUNS - 1])}, ... {left} more ..., {parts[-1]}"


def _nearest(gap: Gap, good: Sequence[int]) -> str:
    place = bisect(good, gap[0])
    near = [str(each) for each in (*good[max(0, place - 1) : place], *good[place : place + 1])]
    return f"nearest supported: {' and '.join(near)}" if near else "no length of these is supported"


def _reasons(findings: Findings) -> Iterator[str]:
    """One line per rule, with the numbers of the gap's first length."""
    first: dict[str, Finding] = {}
    for each in findings:
        if each.severity is Severity.ERROR:
            first.setdefault(each.code, each)
    shown = list(first.values())
    yield from (f"{each.code} {each.message}" for each in shown[:MOST_REASONS])
    if len(shown) > MOST_REASONS:
        yield f"and {', '.join(each.code for each in shown[MOST_REASONS:])}"
