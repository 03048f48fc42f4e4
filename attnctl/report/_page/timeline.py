"""Where a sweep's time went: on the device, phase by phase, and in the compile workers."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from attnctl.report._page.figure import BLUE, GREEN, LEGEND, ORANGE, PINK, SKY, VERMILION, Figure, axis
from attnctl.report._page.recall import Recalled

PHASES = {"compile": PINK, "first_call": ORANGE, "check": GREEN, "timing": BLUE}


def timeline(sweep: Recalled) -> Iterator[Figure]:
    """In the order of recording, which is the order of measuring."""
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
        summary = f"{total:.1f} s of the measuring device; the longest was {labels[longest]}. Waits are not recorded."
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
