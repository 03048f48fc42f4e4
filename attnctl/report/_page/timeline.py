"""Where a sweep's time went: on the device, phase by phase, and in the compile workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from attnctl.gpu.protocol import Result
from attnctl.report._page.figure import BLUE, GREEN, LEGEND, ORANGE, PINK, SKY, VERMILION, Figure, axis
from attnctl.report._page.recall import Recalled
from attnctl.tune.journal import OutcomeRecord
from attnctl_kernels.contract import Span

PHASES = {"compile": PINK, "first_call": ORANGE, "check": GREEN, "timing": BLUE}


def timeline(sweep: Recalled) -> Iterator[Figure]:
    """Side by side as it happened, where the journal has the times; and config by config, in the order of measuring."""
    spans = [(record, span) for record in sweep.result.outcomes for span in _spans(record.result)]
    if spans:
        yield _lanes(sweep, spans)
    yield from _config_by_config(sweep)


def _spans(result: Result) -> Iterator[Span]:
    """Of the compile worker and of the measuring worker; the span of a failed compilation is in the result."""
    if result.compiled and result.compiled.span:
        yield result.compiled.span
    if result.span:
        yield result.span


def _lanes(sweep: Recalled, spans: Sequence[tuple[OutcomeRecord, Span]]) -> Figure:
    """One lane per worker process, the measuring one below."""
    start, end = min(span.begun for _, span in spans), max(span.ended for _, span in spans)
    workers = list(dict.fromkeys((span.lane, span.worker) for _, span in sorted(spans, key=lambda each: each[1].begun)))
    compilers = [worker for lane, worker in workers if lane == "compile"]
    lanes = {worker: f"compile {number}" for number, worker in enumerate(compilers, 1)}
    lanes |= {worker: "device" for lane, worker in workers if lane == "measure"}
    data = []
    for lane, colour in (("measure", BLUE), ("compile", PINK)):
        shown = [(record, span) for record, span in spans if span.lane == lane]
        names = [sweep.label(record.candidate) for record, _ in shown]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": lane,
                "y": [lanes[span.worker] for _, span in shown],
                "base": [span.begun - start for _, span in shown],
                "x": [span.ended - span.begun for _, span in shown],
                "customdata": [
                    f"{escape(f'{name} {record.candidate}')}<br>{record.result.outcome}<br>"
                    f"{span.begun - start:.2f} s to {span.ended - start:.2f} s"
                    for name, (record, span) in zip(names, shown, strict=True)
                ],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"color": colour, "line": {"width": 1, "color": "rgba(255,255,255,0.6)"}},
            }
        )
    busy = sum(span.ended - span.begun for _, span in spans if span.lane == "measure")
    compiling = sum(span.ended - span.begun for _, span in spans if span.lane == "compile")
    order = ["device", *(lanes[worker] for worker in compilers)]
    layout = {
        "barmode": "overlay",
        "xaxis": axis("s since the first of these"),
        "yaxis": axis("", type="category", categoryarray=order, categoryorder="array"),
        "legend": LEGEND,
    }
    others = f"; {len(compilers)} compile workers for {compiling:.1f} s" if compilers else ""
    share = busy / (end - start)
    summary = f"{end - start:.1f} s of screening, the device in use for {busy:.1f} s of it ({share:.0%}){others}."
    return Figure("Time line of the screening", summary, data, layout, 150 + 22 * len(order))


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
