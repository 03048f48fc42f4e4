"""Show a profile: the mask as a picture of blocks, what the tiles waste, what the config needs of the device.

One section per problem and pass. A cell of the picture is full (all pairs visible), partial, diagonal (partial, and
the queries meet their own keys in it) or empty; long sequences are scaled down to the width of the terminal.
Operations are those of the whole call: what the mask needs, and what the kernel executes on whole blocks.

Examples:
  attnctl show profiles/window-8k-d256.yaml

  attnctl show profiles/ranker-8k.yaml --seq-len 131072 --svg mask.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.cli._say import say
from attnctl.cli.options import OneProfile, SeqLens
from attnctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnctl_kernels.contract import Case


def show(  # noqa: PLR0917 - the command's options
    profile: OneProfile,
    pass_name: Annotated[
        str | None, typer.Option("--pass", metavar="PASS", help="forward or backward only.", show_default=False)
    ] = None,
    seq_len: SeqLens = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of pictures.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw into an SVG file.", show_default=False)
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw into a PNG file; needs attnctl[report].", show_default=False),
    ] = None,
) -> ExitCode:
    from attnctl.profile.problems import cases  # noqa: PLC0415 - pydantic
    from attnctl.rules.check import check_profile  # noqa: PLC0415
    from attnctl_kernels.rule import Severity  # noqa: PLC0415

    report = check_profile(profile, seq_lens=seq_len or ())
    failed = any(finding.severity is Severity.ERROR for finding in report.findings)
    for finding in report.findings:
        from attnctl.report.text import line  # noqa: PLC0415 - most profiles have none

        typer.echo(line(finding), err=not failed)
    if failed or report.profile is None:
        return ExitCode.FINDINGS
    wanted = [case for case in cases(report.profile, seq_len or ()) if pass_name in (None, case.pass_name)]
    if not wanted:
        raise UsageError(
            f"{profile}: no {pass_name} pass", f"passes of this profile: {', '.join(report.profile.passes)}"
        )
    if svg or png:
        _draw(wanted, svg, png)
    if as_json:
        _print_json(profile, wanted)
    elif not (svg or png):
        _print_pictures(wanted)
    return ExitCode.OK


def _draw(wanted: Sequence[Case], svg: Path | None, png: Path | None) -> None:
    from attnctl.files import write_atomic  # noqa: PLC0415
    from attnctl.report._mask.drawing import as_png, as_svg, draw  # noqa: PLC0415

    drawing = draw(wanted)
    if svg:
        write_atomic(svg, as_svg(drawing))
    if png:
        write_atomic(png, as_png(drawing))
    for path in filter(None, (svg, png)):
        say(f"written: {path}")


def _print_json(profile: Path, wanted: Sequence[Case]) -> None:
    from attnctl.report._mask.blocks import blocks_of  # noqa: PLC0415 - numpy
    from attnctl.report._mask.document import VERSION, described  # noqa: PLC0415

    problems = [described(blocks_of(case)) for case in wanted]
    typer.echo(json.dumps({"version": VERSION, "profile": str(profile), "problems": problems}, indent=2))


def _print_pictures(wanted: Sequence[Case]) -> None:
    from attnctl.report._mask.text import Terminal, section  # noqa: PLC0415 - numpy

    terminal = Terminal.of(sys.stdout)
    for index, case in enumerate(wanted):
        typer.echo(("\n" if index else "") + "\n".join(section(case, terminal)))
