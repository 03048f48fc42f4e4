"""The parts of the page in their order: what each says, shows and lists."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnctl.profile.candidate import case_of
from attnctl.report import _sweep
from attnctl.report._mask.blocks import Blocks, blocks_of
from attnctl.report._mask.coverage import coverage
from attnctl.report._mask.drawing import as_svg, draw_cells
from attnctl.report._mask.text import facts, heading, resource_rows, scale
from attnctl.report._page.compared import Pair
from attnctl.report._page.compared_figures import standing
from attnctl.report._page.contents import Contents
from attnctl.report._page.figure import Figure
from attnctl.report._page.finals_figures import finals_figures
from attnctl.report._page.heat import heat_maps
from attnctl.report._page.recall import Recalled
from attnctl.report._page.rows import DROPPED, SLOWER, UNTRIED, Row
from attnctl.report._page.spread import spreads
from attnctl.report._page.timeline import timeline, without_times
from attnctl.report._page.why import Table, contenders, why
from attnctl_kernels.contract import Case, Outcome
from attnctl_kernels.families import get_family

MOST_LISTED = 100  # rows of the table of all configs; CSV and JSON have the rest


@dataclass(frozen=True, slots=True)
class Section:
    """A headed part of the page. Whatever is empty is left out."""

    title: str
    identifier: str
    lines: tuple[str, ...] = ()
    strong: str = ""
    tables: tuple[tuple[str, Table], ...] = ()  # with a heading each
    figures: tuple[Figure, ...] = ()
    picture: str = ""  # of a mask: an SVG file as a data URI
    picture_words: str = ""
    parts: tuple[Section, ...] = ()
    folded: bool = False


def sections_of(contents: Contents) -> Iterator[Section]:
    if len(contents.sweeps) > 1:
        yield Section("Overview", "overview", tables=(("", _overview(contents.sweeps)),))
    for number, (sweep, rows) in enumerate(contents.sweeps, 1):
        yield _sweep_section(sweep, rows, f"sweep-{number}")
    for number, pair in enumerate(contents.pairs, 1):
        yield _pair_section(pair, f"compared-{number}")
    for number, case in enumerate(contents.cases, 1):
        yield _mask_section(case, f"mask-{number}", heading(case))


def _overview(sweeps: Sequence[tuple[Recalled, Sequence[Row]]]) -> Table:
    lines = []
    for sweep, rows in sweeps:
        result = sweep.result
        best = next((row for row in rows if row.candidate == result.winner), None)
        against = result.against_default
        lines.append(
            (
                sweep.header.profile,
                result.task.problem.slug,
                result.task.pass_name,
                sweep.header.environment.device_name,
                str(result.status),
                str(result.winner or ""),
                f"{best.median_us:,.1f} us" if best and best.median_us else "",
                f"{against.ratio:.3f} [{against.low:.3f}, {against.high:.3f}]" if against else "",
            )
        )
    heads = ("profile", "problem", "pass", "device", "status", "winner", "median", "of the default's time")
    return Table(heads, tuple(lines))


def _sweep_section(sweep: Recalled, rows: Sequence[Row], name: str) -> Section:
    result = sweep.result
    roles = contenders(sweep, rows)
    maps = list(heat_maps(rows, roles.get("winner"), roles.get("default")))
    tried = sum(row.outcome not in (DROPPED, UNTRIED) for row in rows)
    strong, *lines = _sweep.verdict(result)
    lines.append(f"{len(rows)} configs, {tried} tried, {sum(row.timed for row in rows)} timed.")
    if not sweep.whole:
        lines.append("The space of this sweep cannot be built again: what the rules dropped is not shown.")
    if not result.measured_all:
        lines.append("The sweep did not come to its end: it may have wanted to try more.")
    parts = (
        Section("Why this one", f"{name}-why", tables=(("", why(sweep, rows)),)),
        Section("Tiles", f"{name}-tiles", figures=tuple(maps)),
        Section("Decision", f"{name}-finals", figures=tuple(finals_figures(sweep))),
        Section("All configs", f"{name}-configs", figures=tuple(spreads(rows, dict(roles)))),
        Section("Outcomes and reasons", f"{name}-reasons", tables=(("", _reasons(rows)),)),
        Section(
            "Where the time went",
            f"{name}-time",
            lines=tuple(filter(None, (without_times(sweep),))),
            figures=tuple(timeline(sweep)),
        ),
        _mask_section(
            case_of(sweep.case, result.winner or result.space.default),
            f"{name}-mask",
            f"The mask, at the blocks of the {'winner' if result.winner else 'default'}",
        ),
        Section("Environment", f"{name}-environment", tables=(("", _environment(sweep)),)),
        Section("Table of configs", f"{name}-table", tables=(("", _listed(rows)),), folded=True),
    )
    title = f"{sweep.header.profile}: {result.task.problem.slug} {result.task.pass_name}"
    device = f"{sweep.header.task.family} on {sweep.header.environment.device_name}"
    return Section(title, name, lines=(device, *lines), strong=strong, parts=parts)


def _pair_section(pair: Pair, name: str) -> Section:
    differences = pair.differences or ("the same problem, device, versions and rules",)
    title = f"{pair.first.header.profile} and {pair.second.header.profile} compared"
    lines = tuple(f"differs: {each}" for each in differences) if pair.differences else differences
    return Section(title, name, lines=lines, figures=(standing(pair),))


def _mask_section(case: Case, name: str, title: str) -> Section:
    blocks = blocks_of(case)
    found = tuple(facts(coverage(blocks), case))
    heads, *resources = resource_rows(get_family(case.family).resources(case))
    tables = [("", Table(("", ""), found))]
    if resources:
        tables.append(("What the config takes of the device", Table(heads, tuple(resources), numeric=True)))
    return Section(
        title,
        name,
        lines=(" ".join(f"{key}={value}" for key, value in case.config.items()),),
        tables=tuple(tables),
        picture=_data_uri(blocks),
        picture_words=f"Blocks of the mask. {scale(blocks, blocks.cells(256, 256))}. {found[0][1]}.",
    )


def _data_uri(blocks: Blocks) -> str:
    svg = as_svg(draw_cells(blocks))
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _reasons(rows: Sequence[Row]) -> Table:
    """Each kind of failure and each rule, with its count and one example."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.outcome not in (str(Outcome.OK), SLOWER, UNTRIED):
            found.setdefault((row.outcome, row.rule or row.reason), []).append(row)
    lines = [
        (kind, str(len(group)), group[0].reason or kind, group[0].config)
        for (kind, _), group in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    return Table(("outcome", "configs", "reason", "example"), tuple(lines)) if lines else Table((), ())


def _environment(sweep: Recalled) -> Table:
    header, environment = sweep.header, sweep.header.environment
    lines = {name: value for name, value in environment.model_dump(mode="json").items() if value not in (None, [], {})}
    versions = lines.pop("versions", {})
    prepared = sweep.recorded.prepared
    if prepared:
        lines["density"] = f"{prepared.density:.4f}"
        lines["operations"] = f"{prepared.flop:.4g} FLOP"
        lines["tolerance"] = ", ".join(f"{name} {value:.2g}" for name, value in prepared.tolerance.items())
    lines |= {"cache": header.cache, "journal": str(sweep.path), "attnctl": header.attnctl, **versions}
    return Table(("", ""), tuple((name, _plain(value)) for name, value in lines.items()))


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _listed(rows: Sequence[Row]) -> Table:
    heads = ("", "config", "outcome", "us", "p20", "p80", "x fastest", "TFLOP/s", "wasted", "finals")
    lines = [
        (
            row.label,
            row.config,
            row.outcome,
            *(f"{value:,.1f}" if value else "" for value in (row.median_us, row.p20_us, row.p80_us)),
            f"{row.ratio:.3f}" if row.ratio else "",
            f"{row.tflops:.3g}" if row.tflops else "",
            f"{row.waste:.1%}" if row.waste is not None else "",
            f"{row.finals.ratio:.3f} {row.finals.verdict}" if row.finals else "",
        )
        for row in rows[:MOST_LISTED]
    ]
    if len(rows) > MOST_LISTED:
        lines.append((f"{len(rows) - MOST_LISTED} more in the CSV and JSON files", *[""] * (len(heads) - 1)))
    return Table(heads, tuple(lines))
