"""Write a first profile, commented and valid, from options or answers.

What is not given is asked for at a terminal, and otherwise chosen so that the profile is valid: `--yes` asks nothing.
A file that is there already is never overwritten. If what was given cannot be valid, the rules say why, and nothing is
written.

Examples:
  attnctl init profiles/mine.yaml

  attnctl init profiles/mine.yaml --yes --family fa4 --seq-len 8192 --mask sliding_window:window=1024

Exit code 0: written; 1: no valid profile with these options; 2: wrong usage, or the file is there already.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnctl.cli import _complete
from attnctl.cli._say import say
from attnctl.cli.options import PassName, SeqLens
from attnctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from attnctl.profile.initial import Wishes


def init(  # noqa: PLR0917 - the command's options
    path: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The profile to write.")],
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The kernel: fa4, flex, blocks, ...", autocompletion=_complete.families),
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="ARCH", help="sm_90, sm_100, ...", autocompletion=_complete.arches)
    ] = None,
    pass_name: Annotated[
        list[PassName] | None, typer.Option("--pass", help="Repeatable.", show_default="forward")
    ] = None,
    seq_len: SeqLens = None,
    batch_size: Annotated[int | None, typer.Option(metavar="N", min=1, show_default="2")] = None,
    num_heads_q: Annotated[int | None, typer.Option("--heads", metavar="N", min=1, show_default="16")] = None,
    num_heads_kv: Annotated[int | None, typer.Option("--kv-heads", metavar="N", min=1)] = None,
    head_dim: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="bfloat16, float16 or float32.")] = None,
    mask: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="causal, sliding_window:window=1024, ...", autocompletion=_complete.masks),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
) -> ExitCode:
    from attnctl.files import write_new  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.profile.initial import Wishes, compose  # noqa: PLC0415
    from attnctl.report.text import line  # noqa: PLC0415

    if os.path.lexists(path):
        raise UsageError(f"{path}: is there already, and is not overwritten", "name another file")
    asking = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    passes: Any = tuple(each.value for each in pass_name or (PassName.FORWARD,))
    wishes = Wishes(
        family=family or (_ask_family() if asking else "blocks"),
        arch=arch,
        passes=passes,
        batch_size=batch_size,
        seq_lens=tuple(seq_len or ()),
        num_heads_q=num_heads_q,
        num_heads_kv=num_heads_kv,
        head_dim=head_dim,
        dtype=dtype,
        mask=mask,
    )
    draft = compose(_ask(wishes) if asking else wishes)
    for finding in draft.report.findings:
        typer.echo(line(finding).replace(finding.path, str(path), 1), err=True)
    if draft.report.errors:
        typer.echo("nothing was written: no profile with these options is valid", err=True)
        return ExitCode.FINDINGS
    write_new(path, draft.text)
    say(f"written: {path}; next: attnctl validate {path}")
    return ExitCode.OK


def _ask_family() -> str:
    from attnctl_kernels.families import family_names  # noqa: PLC0415

    typer.echo(f"families: {', '.join(family_names())}", err=True)
    answer: str = typer.prompt("family", default="blocks", err=True)
    return answer


def _ask(wishes: Wishes) -> Wishes:
    """Ask about what a kernel depends on most; the rest has an option."""
    from dataclasses import replace  # noqa: PLC0415

    from attnctl.profile.initial import PATTERNS  # noqa: PLC0415

    answers: dict[str, Any] = {}
    if not wishes.seq_lens:
        answers["seq_lens"] = (typer.prompt("sequence length", default=4096, type=int, err=True),)
    if wishes.num_heads_q is None:
        answers["num_heads_q"] = typer.prompt("query heads", default=16, type=int, err=True)
    if wishes.head_dim is None:
        answers["head_dim"] = typer.prompt("head dimension", default=128, type=int, err=True)
    if wishes.mask is None:
        typer.echo(f"masks: {', '.join(PATTERNS)}", err=True)
        answers["mask"] = typer.prompt("mask", default="causal", err=True)
    return replace(wishes, **answers)
