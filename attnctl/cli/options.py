"""Arguments and options that several commands share, so that they look and work alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Profiles = Annotated[
    list[Path], typer.Argument(metavar="PATH", show_default=False, help="Profiles, or folders that hold profiles.")
]
OneProfile = Annotated[Path, typer.Argument(metavar="PROFILE", show_default=False, help="A profile.")]
SeqLens = Annotated[
    list[int] | None,
    typer.Option("--seq-len", metavar="N", min=1, help="Instead of the profile's lengths; repeatable."),
]


def device_name(text: str | None) -> str | None:
    """What `--device` names: ``0`` is ``cuda:0``."""
    return f"cuda:{text}" if text and text.isdecimal() else text
