"""How times spread over the configs: all of them in order, by parameter, and against the work that blocks waste."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from attnctl.report._page.figure import (
    BLUE,
    GREY,
    LEGEND,
    ORANGE,
    SERIES,
    SKY,
    SYMBOLS,
    VERMILION,
    Figure,
    axis,
    spell,
    values,
)
from attnctl.report._page.heat import grid_of
from attnctl.report._page.rows import DROPPED, SLOWER, UNTRIED, Row, parameter_names
from attnctl_kernels.contract import Outcome

MOST_PARAMETERS = 8
_LOG_ABOVE = 8  # times the fastest: a straight scale would flatten the good ones
_COLOURS = {str(Outcome.OK): BLUE, SLOWER: ORANGE, DROPPED: GREY, UNTRIED: SKY}


def spreads(rows: Sequence[Row], names: dict[str, Row]) -> Iterator[Figure]:
    """``names``: the rows to point out."""
    yield _outcomes(rows)
    timed = [row for row in rows if row.timed]
    if timed:
        yield _in_order(timed, names)
        yield from _by_parameter(timed)
        if len({row.waste for row in timed if row.waste is not None}) > 1:
            yield _against_waste(timed)


def _outcomes(rows: Sequence[Row]) -> Figure:
    counts = Counter(row.outcome for row in rows)
    kinds = [kind for kind, _ in counts.most_common()][::-1]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [counts[kind] for kind in kinds],
            "y": kinds,
            "text": [counts[kind] for kind in kinds],
            "marker": {"color": [_COLOURS.get(kind, VERMILION) for kind in kinds]},
            "hovertemplate": "%{y}: %{x}<extra></extra>",
        }
    ]
    words = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    layout = {"xaxis": axis("configs"), "yaxis": axis("", type="category"), "showlegend": False}
    return Figure("What happened to each config", f"{len(rows)} configs: {words}.", data, layout, 120 + 30 * len(kinds))


def _in_order(timed: Sequence[Row], names: dict[str, Row]) -> Figure:
    """Medians in ascending order, with their spread."""
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "median, p20 to p80",
            "x": list(range(1, len(timed) + 1)),
            "y": [row.median_us for row in timed],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [(row.p80_us or 0) - (row.median_us or 0) for row in timed],
                "arrayminus": [(row.median_us or 0) - (row.p20_us or 0) for row in timed],
                "thickness": 1,
                "width": 0,
                "color": GREY,
            },
            "marker": {
                "size": 6,
                "color": [ORANGE if row.outcome == SLOWER else BLUE for row in timed],
                "symbol": ["x-thin-open" if row.outcome == SLOWER else "circle" for row in timed],
            },
            "customdata": list(timed),
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    ]
    data += [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [timed.index(row) + 1],
            "y": [row.median_us],
            "hoverinfo": "skip",
            "marker": {"size": 15, "color": VERMILION, "symbol": symbol, "line": {"width": 2}},
        }
        for (name, row), symbol in zip(names.items(), ("square-open", "circle-open", "diamond-open"), strict=False)
        if row in timed
    ]
    first, last = timed[0].median_us or 0.0, max(row.median_us or 0.0 for row in timed)
    summary = f"From {first:,.1f} us to {last:,.1f} us: the slowest that ran took {last / first:.2f} times the fastest."
    layout = {
        "xaxis": axis("configs, fastest first"),
        "yaxis": axis("us", **({"type": "log"} if last > _LOG_ABOVE * first else {"rangemode": "tozero"})),
        "legend": LEGEND,
    }
    return Figure("All that ran, in order", summary, data, layout, 400)


def _by_parameter(timed: Sequence[Row]) -> Iterator[Figure]:
    """How much each parameter matters: all times at each of its values, and what the best one costs."""
    varying = [name for name in parameter_names(timed) if 1 < len(values(timed, name)) <= 24]
    for name in varying[:MOST_PARAMETERS]:
        groups = {value: [row for row in timed if row.parameters.get(name) == value] for value in values(timed, name)}
        best = {value: min(row.ratio or 0.0 for row in group) for value, group in groups.items()}
        labels = [spell(value) for value in groups]
        points = [(spell(value), row) for value, group in groups.items() for row in group]
        data: list[dict[str, Any]] = [
            {
                "type": "scatter",
                "mode": "markers",
                "name": "configs",
                "x": [label for label, _ in points],
                "y": [row.ratio for _, row in points],
                "customdata": [row for _, row in points],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {"size": 7, "color": BLUE, "opacity": 0.45},
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "best",
                "x": labels,
                "y": list(best.values()),
                "hovertemplate": "best at %{x}: %{y:.3f}<extra></extra>",
                "line": {"color": VERMILION, "width": 2},
                "marker": {"symbol": "diamond", "size": 8},
            },
        ]
        choice = min(best, key=lambda value: best[value])
        cost = max(best.values()) / min(best.values()) - 1
        middle = statistics.median(row.ratio or 0.0 for row in groups[choice])
        summary = (
            f"Best at {spell(choice)}, where the median config takes {middle:.2f} times the fastest; "
            f"the worst choice costs at least {cost:.1%}."
        )
        layout = {
            "xaxis": axis(name, type="category", categoryarray=labels, categoryorder="array"),
            "yaxis": axis("x fastest", range=[0.95, max(2.05, 1.05 * max(best.values()))]),
            "showlegend": False,
        }
        yield Figure(name, summary, data, layout, 260, small=True)


def _against_waste(timed: Sequence[Row]) -> Figure:
    """Smaller blocks waste less, larger tiles run faster: where the two meet."""
    grid = grid_of(timed)
    name = grid.down if grid else ""
    groups = values(timed, name) if name else [None]
    data = []
    for index, value in enumerate(groups):
        group = [row for row in timed if row.parameters.get(name) == value] if name else list(timed)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name} {spell(value)}" if name else "configs",
                "x": [row.waste for row in group],
                "y": [row.ratio for row in group],
                "customdata": group,
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "size": 9,
                    "opacity": 0.8,
                    "color": SERIES[index % len(SERIES)],
                    "symbol": SYMBOLS[index % len(SYMBOLS)],
                },
            }
        )
    best = min(timed, key=lambda row: row.ratio or 0.0)
    least = min(row.waste for row in timed if row.waste is not None)
    summary = f"The fastest wastes {best.waste or 0:.1%} of what it executes; the least that any wastes is {least:.1%}."
    layout = {
        "xaxis": axis("operations wasted on partial blocks", tickformat=".1%", rangemode="tozero"),
        "yaxis": axis("x fastest", range=[0.95, 2.05]),
        "legend": LEGEND,
    }
    return Figure("Time against wasted work", summary, data, layout, 380)
