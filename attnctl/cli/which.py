"""Say which config a program gets for a call, and every step that led there.

It is what `attnctl.load_config` returns: the tuned config of exactly these lengths on this device, or that of the
nearest lengths which the rules allow, or the profile's own, or the kernel's default. Needs no device: --device-name
asks about another machine.

Examples:
  attnctl which profiles/ranker-8k.yaml

  attnctl which profiles/ranker-8k.yaml --seq-len 6500 --device-name nvidia_h200 --format json
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnctl.cli.options import OneProfile


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def which(  # noqa: PLR0917 - the command's options
    profile: OneProfile,
    seq_len: Annotated[
        int | None, typer.Option("--seq-len", metavar="N", min=1, help="Queries, and keys. Without it: the profile's.")
    ] = None,
    seqlen_k: Annotated[int | None, typer.Option("--seqlen-k", metavar="N", min=1, help="Keys, if others.")] = None,
    device_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Such as nvidia_h200. Without it: this machine's.")
    ] = None,
    tuned: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Look here first, as load_config(tuned_dir=...) does.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
) -> None:
    from attnctl.profile.decision import decide  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.profile.load import load  # noqa: PLC0415
    from attnctl.profile.problems import tasks  # noqa: PLC0415
    from attnctl.profile.runtime import choose  # noqa: PLC0415
    from attnctl.report import _which as report  # noqa: PLC0415

    loaded = load(profile)
    if seq_len is None and seqlen_k is None and loaded.profile is not None:
        asked = list(tasks(loaded.profile))
    else:
        passes = loaded.profile.passes if loaded.profile else ("forward",)
        asked = [choose(loaded, seq_len, seqlen_k, name) for name in passes]
    decisions = [decide(loaded, task, device_name=device_name, tuned_dir=tuned) for task in asked]
    if output is Format.JSON:
        typer.echo(json.dumps(report.as_json(profile, decisions), indent=2))
    else:
        typer.echo("\n\n".join("\n".join(report.text(profile, each)) for each in decisions))
