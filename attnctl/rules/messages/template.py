"""One message of ``Rule.upstream``: its literal text, and where its values stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from attnctl.rules.messages.window import SILENT, Window, squeeze

VALUE_CHARS = 120  # a value may be a shape, not a page of text
NEARBY_CHARS = 2000  # some twenty frames of a traceback
TRUNCATED_CHARS = 24  # so much of a message must be left to recognise it
LITERAL_CHARS = 12  # a message with less text of its own could be anything

_NAMED = re.compile(r"([A-Za-z_][\w.]*(?:\[\d+\])?(?: \* \d+)?)=$")
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?![\w(])"
_LAST = re.compile(
    rf"[ \t]*['\"`]?({_NUMBER}|[\w.]{{0,40}}\([^()\n]{{0,100}}\)|\[[^][\n]{{0,100}}\]|[\w.\-]{{1,100}})|\s*({_NUMBER})"
)
_FIRST = re.compile(r"([\w.]{0,40}\([^()\n]{0,100}\)|\[[^][\n]{0,100}\]|\S*)$")
_NUMERIC = re.compile(r"[(\[][\d,.]*[)\]]?|[-+]?\d+(?:\.\d+)?")
_ELLIPSIS = re.compile(rf"[\s{re.escape(SILENT)}]*(?:\.\.\.|\u2026|\[truncated\]|$)")


class Span(NamedTuple):
    """Where a template matched, in characters of ``Window.squeezed``."""

    begin: int
    end: int
    values: tuple[str, ...]
    weight: int  # literal characters found: more is more specific
    complete: bool  # or the text broke off


@dataclass(frozen=True)
class Template:
    text: str  # as in Rule.upstream
    witnesses: tuple[str, ...]  # what must have been said shortly before
    literals: tuple[str, ...]  # what stands before, between and behind the values
    names: tuple[str, ...]  # of the values, empty where the message does not say

    @property
    def weight(self) -> int:
        return sum(map(len, self.literals))

    def at(self, window: Window, number: int, begin: int) -> Span | None:
        """Whether the message stands in ``window`` with literal ``number`` at ``begin``."""
        text = window.squeezed
        begins = self._earlier(text, number, begin)
        if begins is None:
            return None
        first = begins[0]
        if any(text.rfind(each, max(0, first - NEARBY_CHARS), first) < 0 for each in self.witnesses):
            return None
        return self._rest(window, begins, begin) if self._starts_word(window, first) else None

    def _earlier(self, text: str, number: int, begin: int) -> list[int] | None:
        """Where the literals before ``number`` begin, and then ``begin``."""
        found = [begin]
        for literal in reversed(self.literals[:number]):
            place = text.rfind(literal, max(0, found[0] - VALUE_CHARS - len(literal)), found[0])
            if place < 0:
                return None
            found.insert(0, place)
        return found

    def _starts_word(self, window: Window, begin: int) -> bool:
        first = self.literals[0][:1]
        return not (_is_word(first) and _is_word(window.before(begin)[-1:]))

    def _rest(self, window: Window, begins: list[int], place: int) -> Span | None:
        """Go on from the literal that was found, as far as the text does."""
        text = window.squeezed
        values = [text[begins[i] + len(self.literals[i]) : begins[i + 1]] for i in range(len(begins) - 1)]
        weight = sum(map(len, self.literals[: len(begins) - 1]))
        for number in range(len(begins) - 1, len(self.literals)):
            literal = self.literals[number]
            if number >= len(begins):
                start = place
                place = _find(literal, text, start)
                if place < 0:
                    return self._cut_in_value(window, begins[0], start, values, weight)
                values.append(text[start:place])
            elif not text.startswith(literal, place):
                kept = _common(literal, text, place)
                return self._cut(window, begins[0], place + kept, values, weight + kept)
            place += len(literal)
            weight += len(literal)
        return self._complete(window, begins[0], place, values, weight)

    def _complete(self, window: Window, begin: int, end: int, values: list[str], weight: int) -> Span | None:
        last = self.literals[-1]
        if last:
            if _is_word(last[-1]) and _is_word(window.after(end)[:1]):
                return None
        else:
            found = _LAST.match(window.following(end))
            values[-1] = squeeze(found[1] or found[2]).rstrip(".") if found else ""
            end += len(values[-1])
        if not self.literals[0]:
            found = _FIRST.search(window.before(begin))
            values[0] = squeeze(found[1]) if found else ""
        return Span(begin, end, tuple(values), weight, complete=True)

    def _cut_in_value(self, window: Window, begin: int, start: int, values: list[str], weight: int) -> Span | None:
        """The text breaks off in a value, or in the literal behind it."""
        number = _NUMERIC.match(window.squeezed, start)
        end = number.end() if number else start
        kept = _common(self.literals[len(values) + 1], window.squeezed, end)
        if kept:  # otherwise the number itself may be cut
            values = [*values, window.squeezed[start:end]]
        return self._cut(window, begin, end + kept, values, weight + kept)

    def _cut(self, window: Window, begin: int, end: int, values: list[str], weight: int) -> Span | None:
        if weight < TRUNCATED_CHARS or not _ELLIPSIS.match(window.after(end)):
            return None
        end -= window.squeezed[end - 1] == "."  # as at the end of a complete message
        return Span(begin, end, tuple(values), weight, complete=False)


def parse(text: str) -> Template:
    """``Rule.upstream`` -> template. A full stop at the end may be missing in what people paste."""
    *witnesses, message = [part for part in map(str.strip, text.split("\u2026")) if part] or [""]
    parts = message.rstrip(".").split("{}")
    return Template(
        text=text,
        witnesses=tuple(map(squeeze, witnesses)),
        literals=tuple(map(squeeze, parts)),
        names=tuple(_names(parts)),
    )


def _names(parts: list[str]) -> Iterator[str]:
    for part in parts[:-1]:
        named = _NAMED.search(part)
        yield named[1] if named else ""


def _find(literal: str, text: str, start: int) -> int:
    """Where ``literal`` comes next, not inside the brackets of the value before it; below 0: not near enough."""
    end = start + VALUE_CHARS + len(literal)
    first = place = text.find(literal, start, end)
    while place >= 0:
        value = text[start:place]
        if value.count("(") + value.count("[") <= value.count(")") + value.count("]"):
            return place
        place = text.find(literal, place + 1, end)
    return first


def _common(literal: str, text: str, place: int) -> int:
    """How much of ``literal`` stands at ``place``."""
    there = text[place : place + len(literal)]
    return next((n for n, (a, b) in enumerate(zip(literal, there, strict=False)) if a != b), len(there))


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()
