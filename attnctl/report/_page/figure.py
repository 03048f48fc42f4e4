"""What the figures share: a plotly figure as plain data, colours, hover texts.

Colours of text, paper and grid come from the page, which knows whether the reader's screen is light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from attnctl.report._page.rows import DROPPED, SLOWER, UNTRIED, Row
from attnctl.tune.decide import Verdict
from attnctl_kernels.contract import Outcome

# Okabe and Ito's palette: told apart with any kind of colour blindness, on light and on dark paper. Marks differ in
# shape as well, so that nothing is said by colour alone.
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
SKY, VERMILION, GREY = "#56b4e9", "#d55e00", "#8a949e"
SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
# Best is bright on both papers; cividis is made for colour blindness, and its brightness falls evenly.
SCALE = {"colorscale": "Cividis", "reversescale": True}

VERDICTS: dict[Verdict, tuple[str, str]] = {
    Verdict.BETTER: (GREEN, "diamond"),
    Verdict.SAME: (BLUE, "circle"),
    Verdict.WORSE: (VERMILION, "x"),
    Verdict.INCONCLUSIVE: (GREY, "circle-open"),
}
# Short enough for a cell of a heat map.
SHORT = {
    DROPPED: "rule",
    UNTRIED: "·",
    SLOWER: "slow",
    str(Outcome.COMPILE_ERROR): "comp",
    str(Outcome.OUT_OF_RESOURCES): "res",
    str(Outcome.LAUNCH_ERROR): "launch",
    str(Outcome.WRONG_RESULT): "wrong",
    str(Outcome.TIMEOUT): "time",
    str(Outcome.WORKER_DIED): "died",
    str(Outcome.SKIPPED): "skip",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing. ``summary`` says in words what it shows: the caption, and what a screen reader reads.

    ``customdata`` of a trace holds what hovering shows: rows, or texts that are escaped already.
    """

    title: str
    summary: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 360
    small: bool = False  # one of several that stand side by side where there is room


LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}


def axis(title: str, **more: Any) -> dict[str, Any]:
    # Fixed ranges: a finger that scrolls the page must not zoom the figure.
    return {"title": {"text": title}, "automargin": True, "fixedrange": True, "zeroline": False, **more}


def hover(row: Row) -> str:
    """Everything about one config, line by line."""
    return "<br>".join(escape(line, quote=False) for line in _hover_lines(row))


def _hover_lines(row: Row) -> Iterator[str]:
    yield f"{row.label or 'config'}: {row.outcome}"
    yield from (f"{name} = {value}" for name, value in row.parameters.items())
    if row.timed:
        yield f"{row.median_us:,.1f} us [{row.p20_us:,.1f}, {row.p80_us:,.1f}], {row.samples} samples"
    if row.ratio:
        yield f"{row.ratio:.3f} times the fastest"
    if row.tflops:
        yield f"{row.tflops:.3g} TFLOP/s"
    if row.waste is not None:
        yield f"{row.waste:.1%} of the operations wasted"
    if row.finals:
        yield f"finals: {row.finals.ratio:.3f} [{row.finals.low:.3f}, {row.finals.high:.3f}], {row.finals.verdict}"
    if row.reason:
        yield row.reason if len(row.reason) <= 90 else f"{row.reason[:90]}..."


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of one parameter in their natural order."""
    found = {row.parameters.get(name) for row in rows}
    return sorted(found - {None}, key=_order)


def spell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, sparse blocks by their sides, the rest by name."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    sides = str(value).split("x")
    if len(sides) == 2 and all(side.isdecimal() for side in sides):
        return 1, int(sides[0]) * 1e6 + int(sides[1]), ""
    return 2, 0.0, str(value)
