"""The finals: intervals of the contenders, the A/A pair, cycle by cycle, and the machine's clock meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain
from typing import Any

from attnctl.gpu.protocol import Cycle
from attnctl.report._page.figure import BLUE, GREY, LEGEND, ORANGE, SKY, VERDICTS, VERMILION, Figure, axis
from attnctl.report._page.recall import Recalled
from attnctl.tune.decide import MIN_CLOCK, Comparison, describe, good_cycles
from attnctl.tune.finals import AGAIN

THROTTLE_SYMBOLS = {"power_cap": "triangle-down", "thermal": "x", "power_brake": "star"}


def finals_figures(sweep: Recalled) -> Iterator[Figure]:
    decision = sweep.result.decision
    if decision is None:
        return
    yield _intervals(sweep, dict(decision.vs_incumbent))
    processes = [each.cycles for each in sweep.recorded.finals if each.cycles]
    if processes:
        yield _cycles(sweep, processes)
    if any(cycle.sm_clock_mhz for cycle in chain(*processes)):
        yield _clocks(sweep, processes)


def _intervals(sweep: Recalled, found: dict[str, Comparison]) -> Figure:
    """A forest plot: one line per contender, the baseline at 1."""
    baseline, winner = sweep.result.baseline, sweep.result.decision.winner if sweep.result.decision else ""
    order = sorted((name for name in found if name != baseline), key=lambda name: -found[name].ratio)
    floor = max((found[name].floor for name in order), default=0.0)
    margin = max((found[name].margin for name in order), default=0.0)
    data: list[dict[str, Any]] = []
    for verdict, (colour, symbol) in VERDICTS.items():
        names = [name for name in order if found[name].verdict is verdict]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": str(verdict),
                "x": [found[name].ratio for name in names],
                "y": [_tick(name, winner) for name in names],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [_finite(found[name].high - found[name].ratio) for name in names],
                    "arrayminus": [_finite(found[name].ratio - found[name].low) for name in names],
                    "thickness": 2,
                },
                "customdata": [f"{escape(str(sweep.result.names[name]))}<br>{describe(found[name])}" for name in names],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"size": 11, "color": colour, "symbol": symbol, "line": {"width": 2, "color": colour}},
            }
        )
    layout = {
        "xaxis": axis(f"time over the time of {baseline}"),
        "yaxis": axis(
            "", type="category", categoryarray=[_tick(name, winner) for name in order], categoryorder="array"
        ),
        "legend": LEGEND,
        "shapes": [_band(margin, SKY, 0.18), _band(floor, GREY, 0.45), _line(1.0)],
    }
    summary = (
        f"Interleaved in {sweep.result.processes} fresh processes, against {baseline}; bars are 95 % intervals. "
        f"Blue band: the margin of {margin:.1%} that a difference must exceed; grey band: {floor:.2%}, the largest "
        "difference that a kernel shows to itself (A/A)."
    )
    return Figure("Finals", summary, data, layout, 170 + 26 * len(order))


def _cycles(sweep: Recalled, processes: Sequence[Sequence[Cycle]]) -> Figure:
    """Paired ratios: the winner, and the baseline against itself."""
    baseline = sweep.result.baseline
    decision = sweep.result.decision
    shown = [(baseline + AGAIN, "the baseline again (A/A)", GREY, "circle-open")]
    rival = _rival(sweep)
    if rival:
        role = "the winner" if decision and rival == decision.winner else "the closest rival"
        shown.append((rival, f"{rival}, {role}", BLUE, "circle"))
    numbered = list(enumerate(chain(*processes), start=1))
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": title,
            "x": [number for number, cycle in numbered if {name, baseline} <= cycle.samples_us.keys()],
            "y": [
                cycle.samples_us[name] / cycle.samples_us[baseline]
                for _, cycle in numbered
                if {name, baseline} <= cycle.samples_us.keys()
            ],
            "hovertemplate": "cycle %{x}: %{y:.4f}<extra></extra>",
            "marker": {"size": 6, "color": colour, "symbol": symbol},
        }
        for name, title, colour, symbol in shown
    ]
    layout = {
        "xaxis": axis("cycle"),
        "yaxis": axis(f"time over {baseline}"),
        "legend": LEGEND,
        "shapes": _borders(processes),
    }
    summary = "Each point is one cycle: two samples of the same moment. Lines stand between processes."
    return Figure("Cycle by cycle", summary, data, layout, 320)


def _clocks(sweep: Recalled, processes: Sequence[Sequence[Cycle]]) -> Figure:
    clock = sweep.header.environment.clock_default_mhz
    numbered = list(enumerate(chain(*processes), start=1))
    clocks = [cycle.sm_clock_mhz for _, cycle in numbered if cycle.sm_clock_mhz]
    kept = {id(cycle) for cycles in good_cycles(processes, clock) for cycle in cycles}
    dropped = sum(id(cycle) not in kept for _, cycle in numbered)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "SM clock",
            "x": [number for number, _ in numbered],
            "y": [cycle.sm_clock_mhz for _, cycle in numbered],
            "line": {"color": BLUE, "width": 1.5, "shape": "hv"},
            "hovertemplate": "cycle %{x}: %{y} MHz<extra></extra>",
        }
    ]
    reasons = sorted({reason for _, cycle in numbered for reason in cycle.throttle})
    for reason in reasons:
        hit = [(number, cycle) for number, cycle in numbered if reason in cycle.throttle]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": reason,
                "x": [number for number, _ in hit],
                "y": [cycle.sm_clock_mhz for _, cycle in hit],
                "hovertemplate": f"cycle %{{x}}: {reason}<extra></extra>",
                "marker": {
                    "size": 7,
                    "color": ORANGE if reason == "power_cap" else VERMILION,
                    "symbol": THROTTLE_SYMBOLS.get(reason, "square"),
                },
            }
        )
    shapes = _borders(processes)
    if clock:
        shapes.append(
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": clock, "y1": clock, "line": {"color": GREY}}
        )
    counts = ", ".join(f"{reason} in {sum(reason in cycle.throttle for _, cycle in numbered)}" for reason in reasons)
    usual = f"default {clock} MHz, cycles below {MIN_CLOCK * clock:.0f} MHz are dropped" if clock else "default unknown"
    summary = f"{usual}; throttled: {counts or 'never'}; {dropped} of {len(numbered)} cycles dropped."
    layout = {
        "xaxis": axis("cycle"),
        "yaxis": axis("MHz", **({"range": [0.98 * min(clocks), 1.02 * max(clock, *clocks)]} if clock else {})),
        "legend": LEGEND,
        "shapes": shapes,
    }
    return Figure("Clock and throttling in the finals", summary, data, layout, 300)


def _rival(sweep: Recalled) -> str | None:
    """The winner, or if the baseline has won, the one that came closest."""
    decision, baseline = sweep.result.decision, sweep.result.baseline
    if decision is None:
        return None
    if decision.winner != baseline:
        return decision.winner
    others = [name for name in decision.vs_incumbent if name != baseline]
    return min(others, key=lambda name: decision.vs_incumbent[name].ratio, default=None)


def _tick(name: str, winner: str) -> str:
    return f"{name} (winner)" if name == winner else name


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _band(width: float, colour: str, opacity: float) -> dict[str, Any]:
    edge = width if math.isfinite(width) else 0.0
    place = {"yref": "paper", "y0": 0, "y1": 1, "x0": 1 - edge, "x1": 1 + edge}
    return {"type": "rect", **place, "fillcolor": colour, "opacity": opacity, "line": {"width": 0}, "layer": "below"}


def _line(x: float) -> dict[str, Any]:
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": {"color": GREY, "width": 1}}


def _borders(processes: Sequence[Sequence[Cycle]]) -> list[dict[str, Any]]:
    """Vertical lines between processes."""
    ends: list[int] = []
    for cycles in processes[:-1]:
        ends.append((ends[-1] if ends else 0) + len(cycles))
    return [{**_line(end + 0.5), "line": {"color": GREY, "width": 1, "dash": "dot"}} for end in ends]
