"""The figures of a page as the data that its script draws from."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from attnctl.report._page.figure import Figure

_DIGITS = 6  # more than a screen shows


@dataclass
class Drawings:
    """Grows as the template places figures. A config's hover text is in many figures, and written once."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    tips: dict[str, int] = field(default_factory=dict)

    def place(self, figure: Figure) -> str:
        """Remember a figure; the element that will show it gets the name that is returned."""
        name = f"figure-{len(self.figures) + 1}"
        data = [
            {key: self._tips(value) if key == "customdata" else value for key, value in each.items()}
            for each in figure.data
        ]
        self.figures.append({**asdict(figure), "data": data, "id": name})
        return name

    def as_json(self) -> str:
        """Safe inside a script element: nothing in it can end one."""
        document = {"figures": _short(self.figures), "tips": list(self.tips)}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")

    def _tips(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._tips(each) for each in value]
        return self.tips.setdefault(value, len(self.tips))


def _short(value: Any) -> Any:
    """Numbers that are not finite are null, others have no more digits than needed."""
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
