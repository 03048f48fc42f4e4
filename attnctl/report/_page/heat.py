"""Heat maps over the two tile sizes: one of the best over all other parameters, one for each choice of those."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnctl.report._page.figure import LEGEND, SCALE, SHORT, VERMILION, Figure, axis, spell, values
from attnctl.report._page.rows import BLOCK, UNTRIED, Row, parameter_names

MOST_FACETS = 16
_NAMED = 4  # more names say less
COLOURBAR = {
    "orientation": "h",
    "thickness": 8,
    "len": 0.45,
    "x": 1,
    "xanchor": "right",
    "y": 1.02,
    "yanchor": "bottom",
    "tickvals": [1, 1.5, 2],
    "ticktext": ["1", "1.5", "2 x fastest"],
}
WORST = 2.0  # times the fastest: what is slower has the darkest colour
_TILES = (("tile_m", "tile_n"), ("block_q", "block_kv"), ("BLOCK_M", "BLOCK_N"))


@dataclass(frozen=True, slots=True)
class Grid:
    """Which parameters the axes and the facets stand for."""

    down: str
    across: str
    others: tuple[str, ...]


def grid_of(rows: Sequence[Row]) -> Grid | None:
    """The tile sizes, or the two numbers with the most values; None where fewer than two parameters vary."""
    varying = [name for name in parameter_names(rows) if len(values(rows, name)) > 1]
    if BLOCK in varying and _follows(rows, BLOCK, [name for name in varying if name != BLOCK]):
        varying.remove(BLOCK)
    if len(varying) < 2:
        return None
    pair = next((pair for pair in _TILES if set(pair) <= set(varying)), None)
    if pair is None:
        by_size = sorted(varying, key=lambda name: (not _is_number(rows, name), -len(values(rows, name))))
        pair = by_size[1], by_size[0]
    return Grid(*pair, tuple(name for name in varying if name not in pair))


def heat_maps(rows: Sequence[Row], winner: Row | None, default: Row | None) -> Iterator[Figure]:
    grid = grid_of(rows)
    if grid is None:
        return
    marks = {"winner": winner, "default": default}
    yield _map(rows, rows, grid, marks, f"Best over {_words(grid.others)}" if grid.others else "Time")
    choices = list(itertools.product(*(values(rows, name) for name in grid.others)))
    if not 1 < len(choices) <= MOST_FACETS:
        return
    for chosen in choices:
        facet = [
            row for row in rows if all(row.parameters.get(n) == v for n, v in zip(grid.others, chosen, strict=True))
        ]
        title = ", ".join(f"{name} {spell(value)}" for name, value in zip(grid.others, chosen, strict=True))
        if facet:
            yield _map(facet, rows, grid, marks, title, small=True)


def _map(
    rows: Sequence[Row],
    everything: Sequence[Row],
    grid: Grid,
    marks: dict[str, Row | None],
    title: str,
    *,
    small: bool = False,
) -> Figure:
    """``everything`` fixes the axes, so that facets can be compared."""
    down, across = values(everything, grid.down), values(everything, grid.across)
    cells: dict[tuple[Any, Any], Row] = {}
    for row in sorted(rows, key=_merit, reverse=True):  # the best of a cell is put there last
        cells[row.parameters.get(grid.down), row.parameters.get(grid.across)] = row
    found = [[cells.get((y, x)) for x in across] for y in down]
    x, y = [spell(value) for value in across], [spell(value) for value in down]
    data: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "x": x,
            "y": y,
            "z": [[row.ratio if row else None for row in line] for line in found],
            "text": [[f"{row.ratio:.2f}" if row and row.ratio else "" for row in line] for line in found],
            "customdata": [[row or "" for row in line] for line in found],
            "texttemplate": "%{text}",
            "hovertemplate": "%{customdata}<extra></extra>",
            **SCALE,
            "zmin": 1.0,
            "zmax": WORST,
            "xgap": 2,
            "ygap": 2,
            "showscale": not small,
            "colorbar": COLOURBAR,
        },
        _failures(cells, grid),
        *(_mark(name, row, cells, grid) for name, row in marks.items() if row),
    ]
    layout = {
        "xaxis": axis(grid.across, type="category", categoryarray=x, categoryorder="array"),
        "yaxis": axis(grid.down, type="category", categoryarray=y, categoryorder="array"),
        "showlegend": not small,
        "legend": LEGEND,
    }
    height = 130 + 34 * len(down)
    return Figure(title, _summary(rows, grid), data, layout, height if small else height + 60, small)


def _merit(row: Row) -> tuple[bool, float]:
    return row.ratio is None, row.ratio or 0.0


def _failures(cells: dict[tuple[Any, Any], Row], grid: Grid) -> dict[str, Any]:
    """What has no time says why in a word."""
    failed = [row for row in cells.values() if not row.timed]
    return {
        "type": "scatter",
        "mode": "text",
        "name": "not timed: why",
        "x": [spell(row.parameters.get(grid.across)) for row in failed],
        "y": [spell(row.parameters.get(grid.down)) for row in failed],
        "text": [SHORT.get(row.outcome, row.outcome) for row in failed],
        "customdata": failed,
        "hovertemplate": "%{customdata}<extra></extra>",
        "showlegend": False,
    }


def _mark(name: str, row: Row, cells: dict[tuple[Any, Any], Row], grid: Grid) -> dict[str, Any]:
    """A frame around the cell of the winner or the default, where this map shows that very config."""
    here = row.parameters.get(grid.down), row.parameters.get(grid.across)
    shown = cells.get(here) is row
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [spell(here[1])] if shown else [None],
        "y": [spell(here[0])] if shown else [None],
        "hoverinfo": "skip",
        "marker": {
            "symbol": "square-open" if name == "winner" else "circle-open",
            "size": 26 if name == "winner" else 32,
            "color": VERMILION,
            "line": {"width": 3 if name == "winner" else 2},
        },
    }


def _summary(rows: Sequence[Row], grid: Grid) -> str:
    timed = [row for row in rows if row.ratio]
    if not timed:
        return "Nothing here was timed."
    best = min(timed, key=lambda row: row.ratio or 0.0)
    left_out = " A dot: not tried." if any(row.outcome == UNTRIED for row in rows) else ""
    where = f"{grid.down} {best.parameters.get(grid.down)}, {grid.across} {best.parameters.get(grid.across)}"
    counts = f"{len(timed)} of {len(rows)} configs timed"
    return f"{counts}; the fastest here is {where} at {best.ratio:.3f} times the fastest.{left_out}"


def _follows(rows: Sequence[Row], name: str, others: Sequence[str]) -> bool:
    """Whether a parameter is settled by the others."""
    seen: dict[tuple[Any, ...], Any] = {}
    return all(
        seen.setdefault(tuple(row.parameters.get(other) for other in others), row.parameters.get(name))
        == row.parameters.get(name)
        for row in rows
    )


def _is_number(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values(rows, name))


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"the {len(names)} other parameters"
