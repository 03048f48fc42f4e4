"""The figures of a page as the data that its script draws from."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from attnctl.report._page.figure import Figure, hover
from attnctl.report._page.rows import Row

_DIGITS = 6  # more than a screen shows


@dataclass
class Drawings:
    """Grows as the template places figures. A config's hover text is in many figures, and written once."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    tips: dict[str, int] = field(default_factory=dict)
    _of_rows: dict[int, int] = field(default_factory=dict)  # by identity: a row lives as long as the page

    def place(self, figure: Figure) -> str:
        """Remember a figure; the element that will show it gets the name that is returned."""
        name = f"figure-{len(self.figures) + 1}"
        self.figures.append(
            {
                "id": name,
                "title": figure.title,
                "summary": figure.summary,
                "height": figure.height,
                "layout": figure.layout,
                "data": [
                    {key: self._tips(value) if key == "customdata" else value for key, value in trace.items()}
                    for trace in figure.data
                ],
            }
        )
        return name

    def as_json(self) -> str:
        """Safe inside a script element: nothing in it can end one."""
        document = {"figures": _short(self.figures), "tips": list(self.tips)}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")

    def _tips(self, value: Any) -> Any:
        """Numbers in place of rows and texts."""
        if isinstance(value, list):
            return [self._tips(each) for each in value]
        if not isinstance(value, Row):
            return self.tips.setdefault(value, len(self.tips))
        if id(value) not in self._of_rows:
            self._of_rows[id(value)] = self.tips.setdefault(hover(value), len(self.tips))
        return self._of_rows[id(value)]


def _short(value: Any) -> Any:
    """Numbers that are not finite are null, others have no more digits than needed."""
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
