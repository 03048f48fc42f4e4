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
from typing import Annotated

import typer

from attnctl.cli.options import DeviceName, OneProfile, PassOption, SeqLens, TunedDir


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def which(  # noqa: PLR0917 - the command's options
    profile: OneProfile,
    seq_len: SeqLens = None,
    pass_name: PassOption = None,
    device_name: DeviceName = None,
    tuned: TunedDir = None,
    output: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
) -> None:
    from attnctl.profile.decision import decide  # noqa: PLC0415 - a wrong command line costs no pydantic
    from attnctl.profile.load import load  # noqa: PLC0415
    from attnctl.profile.runtime import asked_tasks  # noqa: PLC0415
    from attnctl.report import _which as report  # noqa: PLC0415

    loaded = load(profile)
    asked = asked_tasks(loaded, seq_len or (), pass_name)
    decisions = [decide(loaded, task, device_name=device_name, tuned_dir=tuned) for task in asked]
    if output is Format.JSON:
        typer.echo(json.dumps(report.as_json(profile, decisions), indent=2))
    else:
        typer.echo("\n\n".join("\n".join(report.text(profile, each)) for each in decisions))
