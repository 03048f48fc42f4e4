"""Arguments and options that several commands share, so that they look and work alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnctl.cli import _complete
from attnctl.errors import UsageError

MOST_LENGTHS = 10_000  # as many problems as a profile may make
MOST_LISTED = 8  # more lengths are shown as a table

Profiles = Annotated[
    list[Path], typer.Argument(metavar="PATH", show_default=False, help="Profiles, or folders that hold profiles.")
]
OneProfile = Annotated[Path, typer.Argument(metavar="PROFILE", show_default=False, help="A profile.")]
SeqLens = Annotated[
    list[int] | None,
    typer.Option("--seq-len", metavar="N", min=1, help="Instead of the profile's lengths; repeatable."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device-name",
        metavar="NAME",
        help="Such as nvidia_h200. Without it: this machine's.",
        autocompletion=_complete.device_names,
    ),
]
TunedDir = Annotated[
    Path | None, typer.Option("--tuned", metavar="FOLDER", help="Look here first, as load_config(tuned_dir=...) does.")
]


class PassName(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


PassOption = Annotated[PassName | None, typer.Option("--pass", help="Without it: all that the profile has.")]

LengthRanges = Annotated[
    list[str] | None,
    typer.Option(
        "--seq-len",
        metavar="N|FIRST:LAST[:STEP]",
        help="Instead of the profile's lengths: 1000, 1000,2000 or 128:8192:128; repeatable. "
        "A range, or many lengths, are shown as a table.",
    ),
]


@dataclass(frozen=True, slots=True)
class Lengths:
    """What ``--seq-len`` asks for. ``many``: a table shows it better than a line per finding."""

    values: tuple[int, ...]
    many: bool


def parse_lengths(texts: Sequence[str]) -> Lengths:
    """``["1000", "128:1024:128"]`` as lengths, each once, in the order given; the end of a range belongs to it.

    Raises:
        UsageError: a text is none of these, or they are too many.
    """
    found: dict[int, None] = {}
    parts = [part.strip() for text in texts for part in text.split(",")]
    for part in parts:
        span = _span(part)
        if len(span) > MOST_LENGTHS:
            raise UsageError(f"--seq-len {part}: {len(span)} lengths, at most {MOST_LENGTHS}", "use a larger step")
        found.update(dict.fromkeys(span))
    if len(found) > MOST_LENGTHS:
        raise UsageError(f"--seq-len: {len(found)} lengths, at most {MOST_LENGTHS}", "use a larger step")
    return Lengths(tuple(found), len(found) > MOST_LISTED or any(":" in part for part in parts))


def _span(text: str) -> range:
    numbers = text.split(":")
    if not all(each.isdecimal() and len(each) < 16 and int(each) for each in numbers) or len(numbers) > 3:
        raise UsageError(
            f"--seq-len {text!r} is neither a length above 0 nor FIRST:LAST:STEP", "for example 1000, or 128:8192:128"
        )
    first, last, step = (*map(int, numbers), *(int(numbers[0]), 1)[len(numbers) - 1 :])
    if last < first:
        raise UsageError(f"--seq-len {text}: {last} comes before {first}", f"write {last}:{first}")
    return range(first, last + 1, step)


def device_name(text: str | None) -> str | None:
    """What `--device` names, where it names one: ``0`` is ``cuda:0``.

    Raises:
        UsageError: it names no device.
    """
    if text is None or re.fullmatch(r"cpu|(cpu|cuda):[0-9]{1,3}", text):
        return text
    if re.fullmatch(r"[0-9]{1,3}", text):
        return f"cuda:{text}"
    raise UsageError(f"--device {text!r}: not a device", "name one, for example cpu, 0 or cuda:0")


def device_names(text: str | None) -> str | None:
    """What `--device` names, where it may be several: ``0,1`` or ``all``.

    Raises:
        UsageError: a name is no device, or is there twice.
    """
    if text is None or text == "all":
        return text
    names = [str(device_name(each.strip())) for each in text.split(",")]
    if len(set(names)) < len(names):
        raise UsageError(f"--device {text!r}: names a device twice", "name each once")
    return ",".join(names)
