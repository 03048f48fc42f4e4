"""Two sweeps in one picture: each config's standing in both."""

from __future__ import annotations

from html import escape
from typing import Any

from attnctl.report._page.compared import Pair
from attnctl.report._page.figure import GREY, LEGEND, ORANGE, SKY, VERMILION, Figure, axis
from attnctl.report._page.rows import Row

SHOWN_UP_TO = 2.0  # times the fastest; slower configs say little about which to choose


def standing(pair: Pair) -> Figure:
    """Configs in the lower left corner are good in both."""
    names = [f"{each.header.profile} ({each.header.environment.device_name})" for each in (pair.first, pair.second)]
    shown = [(a, b) for a, b in pair.points if (a.ratio or 9) <= SHOWN_UP_TO and (b.ratio or 9) <= SHOWN_UP_TO]
    data = [_points("configs", shown, SKY, "circle", 8)]
    for sweep, colour, symbol, which in (
        (pair.first, VERMILION, "square-open", "first"),
        (pair.second, ORANGE, "diamond-open", "second"),
    ):
        winner = [each for each in pair.points if each[0].candidate == sweep.result.winner]
        data.append(_points(f"winner of the {which}", winner, colour, symbol, 16))
    layout = {
        "xaxis": axis(f"{names[0]}: x fastest"),
        "yaxis": axis(f"{names[1]}: x fastest"),
        "legend": LEGEND,
        "shapes": [
            {
                "type": "line",
                "x0": 1,
                "y0": 1,
                "x1": SHOWN_UP_TO,
                "y1": SHOWN_UP_TO,
                "line": {"color": GREY, "dash": "dot"},
            }
        ],
    }
    return Figure("Standing in both sweeps", _summary(pair, len(shown)), data, layout, 480)


def _points(name: str, points: list[tuple[Row, Row]], colour: str, symbol: str, size: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [a.ratio for a, _ in points],
        "y": [b.ratio for _, b in points],
        "customdata": [f"{escape(a.config)}<br>{a.median_us:,.1f} us and {b.median_us:,.1f} us" for a, b in points],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"size": size, "color": colour, "symbol": symbol},
    }


def _summary(pair: Pair, shown: int) -> str:
    parts = [
        f"{len(pair.points)} configs were timed in both, {shown} of them within {SHOWN_UP_TO:.0f} times the fastest."
    ]
    if pair.first_in_second:
        parts.append(f"The first sweep's winner takes {pair.first_in_second:.3f} times the fastest of the second.")
    if pair.second_in_first:
        parts.append(f"The second's takes {pair.second_in_first:.3f} times the fastest of the first.")
    return " ".join(parts)
