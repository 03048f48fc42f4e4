"""What a stream can show. Colours are for people at a terminal only: pipes and files get plain text."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

CODES = {
    "error": "31;1",
    "warning": "33;1",
    "strong": "1",
    "dim": "2",
    # Blocks of a mask: blue, yellow and magenta of the terminal's own palette differ in brightness too.
    "full": "34",
    "partial": "33",
    "diagonal": "35",
}


def has_colour(stream: TextIO) -> bool:
    """NO_COLOR (any value but an empty one) and TERM=dumb switch colours off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if colour else text


def columns() -> int:
    """The terminal's width, or what COLUMNS says; 80 where there is neither."""
    return max(20, shutil.get_terminal_size().columns)


def can_show(stream: TextIO, text: str) -> bool:
    """Whether the stream's encoding has all these characters."""
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def one_line(text: str) -> str:
    """Control characters from a file must not reach a terminal or start a line of their own."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
