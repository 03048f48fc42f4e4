"""The mask of one problem and pass for a terminal: picture, legend, counts, resource table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from attnctl.report._mask.blocks import Blocks, Cells, Kind, blocks_of
from attnctl.report._mask.coverage import Coverage, coverage
from attnctl.report._table import table
from attnctl.report._terminal import can_show, columns, has_colour, paint
from attnctl_kernels.contract import Case, Resource
from attnctl_kernels.families import get_family

INDENT = "  "
MAX_ROWS = 32
GLYPHS = {Kind.FULL: "█", Kind.PARTIAL: "▒", Kind.DIAGONAL: "▚", Kind.EMPTY: "·"}
ASCII_GLYPHS = {Kind.FULL: "#", Kind.PARTIAL: "+", Kind.DIAGONAL: "\\", Kind.EMPTY: "."}
_STYLES = {Kind.FULL: "full", Kind.PARTIAL: "partial", Kind.DIAGONAL: "diagonal", Kind.EMPTY: "dim"}
_UNITS = ((10**15, "PFLOP"), (10**12, "TFLOP"), (10**9, "GFLOP"), (10**6, "MFLOP"), (10**3, "kFLOP"))


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the output can show."""

    width: int
    colour: bool
    glyphs: dict[Kind, str]

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        glyphs = GLYPHS if can_show(stream, "".join(GLYPHS.values())) else ASCII_GLYPHS
        return cls(columns(), has_colour(stream), glyphs)


def section(case: Case, terminal: Terminal) -> Iterator[str]:
    """One problem and pass, for people."""
    blocks = blocks_of(case)
    yield paint(heading(case), "strong", colour=terminal.colour)
    width = terminal.width - len(INDENT)
    config = " ".join(f"{name}={value}" for name, value in case.config.items()) or "what the kernel chooses by itself"
    yield from (INDENT + row for row in wrapped("config: ", config, width))
    cells = blocks.cells(MAX_ROWS, max(1, width // 2))
    yield from (INDENT + row for row in picture(cells, terminal))
    yield from (INDENT + row for row in legend(blocks, cells, terminal))
    for name, sentence in facts(coverage(blocks), case):
        yield from (INDENT + row for row in wrapped(f"{name:<12}", sentence, width))
    yield from (INDENT + row for row in resource_table(get_family(case.family).resources(case), width))


def heading(case: Case) -> str:
    device = f" on {case.arch}" if case.arch else ""
    return f"{case.family}{device}, {case.pass_name}: {case.problem.slug}"


def picture(cells: Cells, terminal: Terminal) -> Iterator[str]:
    """Two characters per cell: a character is about twice as high as it is wide."""
    for row in cells.kinds.tolist():
        yield "".join(
            paint(terminal.glyphs[Kind(kind)] * 2 * len(list(run)), _STYLES[Kind(kind)], colour=terminal.colour)
            for kind, run in groupby(row)
        )


def legend(blocks: Blocks, cells: Cells, terminal: Terminal) -> Iterator[str]:
    present = [kind for kind in GLYPHS if (cells.kinds == kind).any()]
    yield "  ".join(
        f"{paint(terminal.glyphs[kind], _STYLES[kind], colour=terminal.colour)} {kind.name.lower()}" for kind in present
    )
    yield from wrapped("", scale(blocks, cells), terminal.width - len(INDENT))


def scale(blocks: Blocks, cells: Cells) -> str:
    """What a cell stands for."""
    tokens = f"{blocks.block[0] * cells.down} queries x {blocks.block[1] * cells.across} keys"
    each = "1 block" if cells.down == cells.across == 1 else f"{cells.down} x {cells.across} blocks"
    return f"queries down, keys across; a cell is {each}, {tokens}"


def facts(found: Coverage, case: Case) -> Iterator[tuple[str, str]]:
    """What the picture costs: name and sentence."""
    block_q, block_kv = found.block
    diagonal = f" ({found.diagonal:,} on the diagonal)" if found.diagonal else ""
    counts = f"{found.full:,} full, {found.partial:,} partial{diagonal}, {found.empty:,} empty"
    yield "blocks", f"{found.blocks:,} of {block_q} x {block_kv} (queries x keys): {counts}"
    yield "density", f"{found.block_density:.1%} of the blocks, {found.pair_density:.1%} of the pairs"
    needed, executed = flop(found.needed_flop), flop(found.executed_flop)
    yield "operations", f"{needed} needed, {executed} executed: {found.waste:.1%} wasted on {_wasted_on(found)}"
    rows = "keys" if case.pass_name == "backward" else "queries"  # noqa: S105 - not a password
    yield "balance", f"{found.fewest:,} to {found.most:,} blocks per block of {rows}, {found.mean:.1f} on average"
    if waves := found.waves:
        thread_blocks = f"{waves.thread_blocks:,} thread blocks on {waves.num_sms} SMs, one on each"
        yield "waves", f"{_count(waves.count)}: {thread_blocks}; the last wave fills {waves.last:.0%}"


def _wasted_on(found: Coverage) -> str:
    """Full blocks waste something only where they reach beyond the ends of the sequences."""
    if not found.ragged:
        return "partial blocks"
    return "partial blocks and behind the ends" if found.partial else "what is behind the ends"


def _count(waves: float) -> str:
    return f"{waves:.1f}" if waves >= 1 else f"{waves:.2g}"


def wrapped(label: str, text: str, width: int) -> list[str]:
    """``text`` beside its label, in lines of the terminal's width where words allow it."""
    return textwrap.wrap(
        text,
        max(width, len(label) + 12),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def resource_table(resources: Sequence[Resource], width: int) -> Iterator[str]:
    """What the config takes of what the device has; below each other where the columns do not fit."""
    if not resources:
        return
    rows = resource_rows(resources)
    lines = list(table(rows, right=(1, 2, 3)))
    if max(map(len, lines)) <= width:
        yield from lines
        return
    for each in resources:
        yield each.name
        yield f"{INDENT}{each.used:,} of {each.limit:,} {each.unit}"
        yield f"{INDENT}{each.headroom:,} left"


def resource_rows(resources: Sequence[Resource]) -> list[tuple[str, ...]]:
    """The table's cells; the heads come first."""
    return [
        ("resource", "used", "limit", "headroom", ""),
        *((each.name, f"{each.used:,}", f"{each.limit:,}", f"{each.headroom:,}", each.unit) for each in resources),
    ]


def flop(count: int) -> str:
    size, unit = next(((size, unit) for size, unit in _UNITS if count >= size), (1, "FLOP"))
    return f"{count / size:.4g} {unit}"
