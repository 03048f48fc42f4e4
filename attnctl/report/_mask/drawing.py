"""The same picture for a file: boxes and texts once, written as SVG or painted as PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from attnctl.errors import MissingExtra
from attnctl.report._mask.blocks import Blocks, Cells, Kind, blocks_of
from attnctl.report._mask.coverage import coverage
from attnctl.report._mask.text import GLYPHS, facts, heading, resource_rows, scale
from attnctl_kernels.contract import Case
from attnctl_kernels.families import get_family

MOST_CELLS = 256  # down and across
SIDE = 640  # of the picture's longer side
MARGIN = 24
LINE = 18
FONT = 13
# Okabe and Ito's colours, told apart by people with any kind of colour blindness, and by their brightness in print.
COLOURS = {Kind.FULL: "#0072b2", Kind.PARTIAL: "#e69f00", Kind.DIAGONAL: "#cc79a7", Kind.EMPTY: "#eceff1"}
INK, PAPER = "#1f2933", "#ffffff"
_STYLE = (
    f"text{{font:{FONT}px ui-monospace,Menlo,Consolas,monospace;fill:{INK};white-space:pre}}"
    f".strong{{font-weight:bold}}.paper{{fill:{PAPER}}}.empty{{fill:{COLOURS[Kind.EMPTY]}}}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.paper{fill:#12181f}.empty{fill:#2b3440}}"
)
_FIRST = FONT * 8
_COLUMNS = (0, 290, 370, 450, 530)  # of the resource table
_SCALE = 2  # pixels of a PNG per unit: sharp on dense screens


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    x: float
    y: float  # of the baseline
    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes below texts, in units of about a pixel."""

    width: float
    height: float
    marks: tuple[Box | Text, ...]
    title: str


def draw(cases: Sequence[Case]) -> Drawing:
    """One panel per problem and pass, from top to bottom."""
    marks: list[Box | Text] = []
    y, width = float(MARGIN), 0.0
    for case in cases:
        panel = list(_panel(case, y))
        marks += panel
        y = max(each.y + (each.height if isinstance(each, Box) else 0) for each in panel) + 2 * MARGIN
        longest = max(len(each.text) for each in panel if isinstance(each, Text))
        width = max(width, SIDE, longest * FONT * 0.6)
    return Drawing(width + 2 * MARGIN, y, tuple(marks), "; ".join(heading(case) for case in cases))


def draw_cells(blocks: Blocks) -> Drawing:
    """The picture alone."""
    cells = blocks.cells(MOST_CELLS, MOST_CELLS)
    marks = tuple(_boxes(blocks, cells, 0.0, 0.0))
    width = max(each.x + each.width for each in marks)
    return Drawing(width, max(each.y + each.height for each in marks), marks, heading(blocks.case))


def _panel(case: Case, top: float) -> Iterator[Box | Text]:
    blocks = blocks_of(case)
    cells = blocks.cells(MOST_CELLS, MOST_CELLS)
    yield Text(MARGIN, top + FONT, heading(case), strong=True)
    boxes = list(_boxes(blocks, cells, MARGIN, top + 2 * LINE))
    yield from boxes
    yield from _captions(blocks, cells, boxes[-1].y + boxes[-1].height + LINE)


def _boxes(blocks: Blocks, cells: Cells, left: float, top: float) -> Iterator[Box]:
    """One for each run of like cells in a row."""
    height, width = cells.kinds.shape
    tokens = (blocks.block[0] * cells.down, blocks.block[1] * cells.across)
    unit = SIDE / max(height * tokens[0], width * tokens[1])
    cell_height, cell_width = unit * tokens[0], unit * tokens[1]
    for row, kinds in enumerate(cells.kinds.tolist()):
        column = 0
        for kind, run in groupby(kinds):
            count = len(list(run))
            title = f"{Kind(kind).name.lower()}: queries from {row * tokens[0]}, keys from {column * tokens[1]}"
            place = left + column * cell_width, top + row * cell_height
            yield Box(*place, count * cell_width, cell_height, COLOURS[Kind(kind)], title)
            column += count


def _captions(blocks: Blocks, cells: Cells, y: float) -> Iterator[Box | Text]:
    """Legend, counts and resources below the picture."""
    x = float(MARGIN)
    for kind in GLYPHS:
        if (cells.kinds == kind).any():
            yield Box(x, y - FONT + 2, FONT, FONT, COLOURS[kind])
            yield Text(x + FONT + 6, y, kind.name.lower())
            x += FONT * 8
    y += LINE
    yield Text(MARGIN, y, scale(blocks, cells))
    for name, sentence in facts(coverage(blocks), blocks.case):
        y += LINE
        yield Text(MARGIN, y, name)
        yield Text(MARGIN + _FIRST, y, sentence)
    y += LINE
    for row in resource_rows(get_family(blocks.case.family).resources(blocks.case)):
        y += LINE
        yield from (Text(MARGIN + left, y, cell) for left, cell in zip(_COLUMNS, row, strict=True) if cell)


def as_svg(drawing: Drawing) -> str:
    """Stands alone: no script, no font, no other file; dark where the reader's screen is."""
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    view = f'viewBox="0 0 {drawing.width:.2f} {drawing.height:.2f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img">',
        f"<title>{escape(drawing.title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" {size}/>',
        *(_svg(mark) for mark in drawing.marks),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _svg(mark: Box | Text) -> str:
    if isinstance(mark, Text):
        strong = ' class="strong"' if mark.strong else ""
        return f'<text x="{mark.x:.1f}" y="{mark.y:.1f}"{strong}>{escape(mark.text)}</text>'
    title = f"<title>{escape(mark.title)}</title>" if mark.title else ""
    paint = 'class="empty"' if mark.colour == COLOURS[Kind.EMPTY] else f'fill="{mark.colour}"'
    place = f'x="{mark.x:.2f}" y="{mark.y:.2f}" width="{mark.width:.2f}" height="{mark.height:.2f}"'
    return f'<rect {place} {paint} shape-rendering="crispEdges">{title}</rect>'


def as_png(drawing: Drawing) -> bytes:
    """Paint with Pillow.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingExtra("Pillow", "report") from None
    image = Image.new("RGB", (round(drawing.width * _SCALE), round(drawing.height * _SCALE)), PAPER)
    canvas = ImageDraw.Draw(image)
    font: Any = ImageFont.load_default(FONT * _SCALE)
    for mark in drawing.marks:
        if isinstance(mark, Box):
            corner = (mark.x + mark.width) * _SCALE - 1, (mark.y + mark.height) * _SCALE - 1
            canvas.rectangle(((mark.x * _SCALE, mark.y * _SCALE), corner), fill=mark.colour)
        else:
            place = (mark.x * _SCALE, mark.y * _SCALE)
            canvas.text(place, mark.text, fill=INK, font=font, anchor="ls", stroke_width=int(mark.strong))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
