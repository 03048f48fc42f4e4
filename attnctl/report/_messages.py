"""What `explain` found in a pasted text.

JSON: ``version`` (1) and ``messages``, the most telling first, each with

``rules``
    As `explain CODE --format json` prints them; several where families say the same.
``message``, ``excerpt``, ``line``, ``occurrences``
    The kernel's message with ``{}`` for values, what was found, on which line first, and how often.
``values``
    ``name``, ``text`` and ``field`` each: the kernel's name and the profile's; either may be empty.
``suggestion``
    Numbers that would work, where the message has the numbers for it; otherwise empty.
``complete``
    False where the text breaks off.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from attnctl.report._terminal import has_colour, one_line, paint
from attnctl.rules.messages import Match
from attnctl.rules.messages.advice import Value, nearest_values, values_of
from attnctl.rules.pages import as_dict, paragraph, title

VERSION = 1
IN_FULL = 3  # of the rest, one line each


def write_json(matches: Sequence[Match], out: TextIO) -> None:
    json.dump({"version": VERSION, "messages": [_as_dict(each) for each in matches]}, out, indent=2)
    out.write("\n")


def _as_dict(match: Match) -> dict[str, object]:
    return {
        "rules": [as_dict(each) for each in match.rules],
        "message": match.message,
        "values": [{"name": each.name, "text": each.text, "field": each.field} for each in values_of(match)],
        "suggestion": nearest_values(match),
        "excerpt": match.excerpt,
        "line": match.line,
        "occurrences": match.occurrences,
        "complete": match.complete,
    }


def write_text(matches: Sequence[Match], out: TextIO, *, width: int) -> None:
    colour = has_colour(out)
    blocks = ["\n".join(_block(each, width, colour=colour)) for each in matches[:IN_FULL]]
    rest = matches[IN_FULL:]
    if rest:
        blocks.append(
            "\n".join(["Also:", *(f"  {_place(each)}: {_codes(each)} {title(each.rules[0])}" for each in rest)])
        )
    out.write("\n\n".join(blocks) + "\n" if blocks else "")


def _block(match: Match, width: int, *, colour: bool) -> Iterator[str]:
    rule, *others = match.rules
    yield paint(f"{rule.code} {rule.name}", "strong", colour=colour)
    yield from textwrap.wrap(title(rule), width)
    yield ""
    yield f"{_place(match)}:"
    yield f"  {one_line(match.excerpt)}"
    yield from _table(values_of(match))
    suggestion = nearest_values(match)
    if suggestion:
        yield from ("", f"Here: {suggestion}.")
    for name in ("Why", "Fix"):
        text = paragraph(rule, name)
        if text:
            yield from ("", *_fill(f"{name}: {text}", width))
    yield ""
    for other in others:
        yield from _fill(f"{other.code} says the same: {title(other)}", width)
    yield f"`attnctl explain {rule.code}` prints the whole page."


def _fill(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _table(values: Sequence[Value]) -> Iterator[str]:
    named = [each for each in values if each.name]
    wide = max((len(each.name) for each in named), default=0)
    for each in named:
        field = f"  ({each.field} in a profile)" if each.field not in ("", each.name) else ""
        yield f"    {each.name.ljust(wide)} = {one_line(each.text)}{field}"


def _place(match: Match) -> str:
    times = "" if match.occurrences == 1 else f", {match.occurrences} times"
    broken = "" if match.complete else ", broken off"
    return f"line {match.line}{times}{broken}"


def _codes(match: Match) -> str:
    return " or ".join(each.code for each in match.rules)
