"""Where a sweep's time went: on the device, phase by phase, and in the compile workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from attnctl.report._page.figure import BLUE, GREEN, LEGEND, ORANGE, PINK, SKY, VERMILION, Figure, axis
from attnctl.report._page.recall import Recalled
from attnctl_kernels.contract import Span

KINDS = {"screening": BLUE, "finals": GREEN, "last check": ORANGE, "compile": PINK}
PHASES = {"compile": PINK, "first_call": ORANGE, "check": GREEN, "timing": BLUE}


class Bar(NamedTuple):
    """Something that a worker process was at."""

    kind: str  # of KINDS
    span: Span
    text: str


def without_times(sweep: Recalled) -> str:
    """What to say of a journal that has no spans; empty: it has some, or there is nothing that took time."""
    if not sweep.result.outcomes or next(_of_screening(sweep), None):
        return ""
    return (
        "This journal says how long each step took, and not when: there is no time line of workers side by side. "
        "Journals say it since 2026-11-30."
    )


def timeline(sweep: Recalled) -> Iterator[Figure]:
    """Side by side as it happened, where the journal has the times; and config by config, in the order of measuring."""
    bars = [*_of_screening(sweep), *_of_finals(sweep)]
    if bars:
        yield _lanes(bars)
    yield from _config_by_config(sweep)


def _of_screening(sweep: Recalled) -> Iterator[Bar]:
    """Of the compile worker and of the measuring worker; the span of a failed compilation is in the result."""
    for record in sweep.result.outcomes:
        result, text = record.result, f"{sweep.label(record.candidate)} {record.candidate}"
        compiled = result.compiled.span if result.compiled else None
        for span in (compiled, result.span):
            if span:
                kind = "compile" if span.lane == "compile" else "screening"
                yield Bar(kind, span, f"{escape(text)}<br>{result.outcome}")


def _of_finals(sweep: Recalled) -> Iterator[Bar]:
    for number, record in enumerate(sweep.recorded.finals, 1):
        if record.span:
            yield Bar("finals", record.span, f"process {number}: {len(record.cycles)} cycles")
    done = sweep.recorded.done
    if done and done.last_check:
        yield Bar("last check", done.last_check, escape(str(done.winner)))


def _lanes(bars: Sequence[Bar]) -> Figure:
    """One lane per compile worker; the device's, which one process after the other uses, is below."""
    start, end = min(each.span.begun for each in bars), max(each.span.ended for each in bars)
    in_order = sorted((each.span for each in bars), key=lambda span: span.begun)
    compilers = list(dict.fromkeys(span.worker for span in in_order if span.lane == "compile"))
    lanes = {worker: f"compile {number}" for number, worker in enumerate(compilers, 1)}
    data = []
    for kind, colour in KINDS.items():
        if shown := [each for each in bars if each.kind == kind]:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": kind,
                    "y": [lanes[each.span.worker] if kind == "compile" else "device" for each in shown],
                    "base": [each.span.begun - start for each in shown],
                    "x": [each.span.ended - each.span.begun for each in shown],
                    "customdata": [
                        f"{each.text}<br>{each.span.begun - start:.2f} s to {each.span.ended - start:.2f} s"
                        for each in shown
                    ],
                    "hovertemplate": "%{customdata}<extra></extra>",
                    "marker": {"color": colour, "line": {"width": 1, "color": "rgba(255,255,255,0.6)"}},
                }
            )
    busy = sum(span.ended - span.begun for span in in_order if span.lane == "measure")
    compiling = sum(span.ended - span.begun for span in in_order if span.lane == "compile")
    order = ["device", *(lanes[worker] for worker in compilers)]
    layout = {
        "barmode": "overlay",
        "xaxis": axis("s since the first of these"),
        "yaxis": axis("", type="category", categoryarray=order, categoryorder="array"),
        "legend": LEGEND,
    }
    others = f"; {len(compilers)} compile workers for {compiling:.1f} s" if compilers else ""
    what = "screening and finals" if any(each.kind == "finals" for each in bars) else "screening"
    share = busy / (end - start)
    summary = f"{end - start:.1f} s of {what}, the device in use for {busy:.1f} s of it ({share:.0%}){others}."
    return Figure(f"Time line of the {what}", summary, data, layout, 150 + 22 * len(order))


def _config_by_config(sweep: Recalled) -> Iterator[Figure]:
    records = list(sweep.result.outcomes)
    numbers = list(range(1, len(records) + 1))
    labels = [f"{sweep.label(each.candidate) or number}: {each.candidate}" for number, each in enumerate(records, 1)]
    tips = [escape(label) for label in labels]
    spent = {phase: [each.result.seconds.get(phase, 0.0) for each in records] for phase in PHASES}
    other = [sum(s for name, s in each.result.seconds.items() if name not in PHASES) for each in records]
    spent = {phase: seconds for phase, seconds in {**spent, "other": other}.items() if any(seconds)}
    if spent:
        total = sum(map(sum, spent.values()))
        longest = max(range(len(records)), key=lambda index: sum(seconds[index] for seconds in spent.values()))
        data = [
            {
                "type": "bar",
                "name": phase,
                "x": numbers,
                "y": seconds,
                "customdata": tips,
                "hovertemplate": f"%{{customdata}}<br>{phase} %{{y:.3f}} s<extra></extra>",
                "marker": {"color": PHASES.get(phase, SKY)},
            }
            for phase, seconds in spent.items()
        ]
        layout = {
            "barmode": "stack",
            "bargap": 0,
            "xaxis": axis("configs in the order of measuring"),
            "yaxis": axis("s"),
            "legend": LEGEND,
        }
        summary = f"{total:.1f} s of the measuring device; the longest was {labels[longest]}."
        yield Figure("The measuring device, config by config", summary, data, layout, 320)
    compiled = [each.result.compiled.seconds if each.result.compiled else 0.0 for each in records]
    if any(compiled):
        cached = [bool(each.result.compiled and each.result.compiled.cached) for each in records]
        data = [
            {
                "type": "bar",
                "x": numbers,
                "y": compiled,
                "customdata": tips,
                "hovertemplate": "%{customdata}<br>%{y:.2f} s<extra></extra>",
                "marker": {"color": [SKY if each else VERMILION for each in cached]},
            }
        ]
        layout = {
            "bargap": 0,
            "xaxis": axis("configs in the order of measuring"),
            "yaxis": axis("s on one core"),
            "showlegend": False,
        }
        found = f", {sum(cached)} found on disk (light)" if any(cached) else ""
        summary = f"{sum(compiled):.1f} core-seconds in workers that see no device, beside the measurements{found}."
        yield Figure("The compile workers, config by config", summary, data, layout, 280)
