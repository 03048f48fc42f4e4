"""Show a profile: the mask as a picture of blocks, what the tiles waste, what the config needs of the device.

One section per problem and pass. A cell of the picture is full (all pairs visible), partial or empty; long sequences
are scaled down to the width of the terminal. Operations are those of the whole call: what the mask needs, and what the
kernel executes on whole blocks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnctl.cli.options import OneProfile, SeqLens
from attnctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from attnctl.report._picture import Coverage
    from attnctl_kernels.contract import Case, Family, Resource, SparseBlock

VERSION = 1  # of the JSON form; fields are only ever added
INDENT = "  "
TILES = (("tile_m", "tile_n"), ("block_q", "block_kv"), ("BLOCK_M", "BLOCK_N"))
UNITS = ((10**15, "PFLOP"), (10**12, "TFLOP"), (10**9, "GFLOP"), (10**6, "MFLOP"))


def show(
    profile: OneProfile,
    pass_name: Annotated[
        str | None, typer.Option("--pass", metavar="PASS", help="forward or backward only.", show_default=False)
    ] = None,
    seq_len: SeqLens = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of pictures.")] = False,
) -> ExitCode:
    from attnctl.profile.problems import cases  # noqa: PLC0415 - pydantic
    from attnctl.report._picture import coverage  # noqa: PLC0415
    from attnctl.report.text import line  # noqa: PLC0415
    from attnctl.rules.check import check_profile  # noqa: PLC0415
    from attnctl_kernels.families import get_family  # noqa: PLC0415
    from attnctl_kernels.rule import Severity  # noqa: PLC0415

    report = check_profile(profile, seq_lens=seq_len or ())
    failed = any(finding.severity is Severity.ERROR for finding in report.findings)
    for finding in report.findings:
        typer.echo(line(finding), err=not failed)
    if failed or report.profile is None:
        return ExitCode.FINDINGS
    wanted = [case for case in cases(report.profile, seq_len or ()) if pass_name in (None, case.pass_name)]
    if not wanted:
        raise UsageError(
            f"{profile}: no {pass_name} pass", f"passes of this profile: {', '.join(report.profile.passes)}"
        )
    family = get_family(report.profile.family)
    if as_json:
        problems = [described(case, coverage(case, block_of(case)), family.resources(case)) for case in wanted]
        typer.echo(json.dumps({"version": VERSION, "profile": str(profile), "problems": problems}, indent=2))
        return ExitCode.OK
    for index, case in enumerate(wanted):
        typer.echo(("\n" if index else "") + "\n".join(section(family, case)))
    return ExitCode.OK


def block_of(case: Case) -> SparseBlock:
    """The blocks that are skipped: sparse blocks, or the kernel's tiles where the call is not block sparse."""
    tiles = ((case.config.get(rows), case.config.get(keys)) for rows, keys in TILES)
    found = next(((rows, keys) for rows, keys in tiles if isinstance(rows, int) and isinstance(keys, int)), (128, 128))
    return case.sparse_block or found


def described(case: Case, found: Coverage, resources: tuple[Resource, ...]) -> dict[str, Any]:
    """The JSON form of one problem and pass."""
    return {
        "problem": case.problem.slug,
        "pass": case.pass_name,
        "config": dict(case.config),
        "block": list(found.block),
        "blocks": {"full": found.full, "partial": found.partial, "empty": found.empty},
        "density": {"blocks": found.block_density, "pairs": found.pair_density},
        "flop": {"needed": found.needed_flop, "executed": found.executed_flop, "waste": found.waste},
        "resources": [
            {"name": each.name, "used": each.used, "limit": each.limit, "unit": each.unit, "headroom": each.headroom}
            for each in resources
        ],
    }


def section(family: Family, case: Case) -> Iterator[str]:
    """One problem and pass, for people."""
    from attnctl.report._picture import ASCII_GLYPHS, GLYPHS, coverage, picture  # noqa: PLC0415
    from attnctl.report._terminal import can_show, columns, has_colour, paint  # noqa: PLC0415

    block = block_of(case)
    glyphs = GLYPHS if can_show(sys.stdout, "".join(GLYPHS)) else ASCII_GLYPHS
    found = coverage(case, block)
    rows, down, across = picture(case, block, columns() - len(INDENT), glyphs)
    device = f" on {case.arch}" if case.arch else ""
    yield paint(
        f"{family.name}{device}, {case.pass_name}: {case.problem.slug}", "strong", colour=has_colour(sys.stdout)
    )
    yield INDENT + "config: " + " ".join(f"{name}={value}" for name, value in case.config.items())
    yield from (INDENT + row for row in rows)
    yield INDENT + f"{glyphs[2]} full  {glyphs[1]} partial  {glyphs[0]} empty; a cell is {down} x {across} blocks"
    counts = f"{found.full} full, {found.partial} partial, {found.empty} empty"
    yield INDENT + f"blocks      {found.blocks} of {block[0]} x {block[1]} (queries x keys): {counts}"
    yield INDENT + f"density     {found.block_density:.1%} of the blocks, {found.pair_density:.1%} of the pairs"
    needed, executed = flop(found.needed_flop), flop(found.executed_flop)
    yield INDENT + f"operations  {needed} needed, {executed} executed: {found.waste:.1%} wasted"
    yield from (INDENT + line for line in table(family.resources(case)))


def table(resources: tuple[Resource, ...]) -> Iterator[str]:
    """What the config takes of what the device has."""
    if not resources:
        return
    cells = [("resource", "used", "limit", "headroom", "")]
    cells += [(each.name, f"{each.used:,}", f"{each.limit:,}", f"{each.headroom:,}", each.unit) for each in resources]
    name, *widths = (max(len(row[column]) for row in cells) for column in range(4))
    for row in cells:
        numbers = "  ".join(value.rjust(width) for value, width in zip(row[1:4], widths, strict=True))
        yield f"{row[0].ljust(name)}  {numbers}  {row[4]}".rstrip()


def flop(count: int) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if count >= size), (1, "FLOP"))
    return f"{count / size:.4g} {unit}"
