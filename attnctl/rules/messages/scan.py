"""All messages of all rules, looked for in one pass over a stream."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from attnctl.rules.messages.template import LITERAL_CHARS, NEARBY_CHARS, TRUNCATED_CHARS, Span, Template, parse
from attnctl.rules.messages.window import Window
from attnctl.rules.registry import AnyRule, every_rule

GRAM = 8
OVERLAP = 4 * NEARBY_CHARS  # raw characters that are looked at again: longer than any message
PIECE = 1 << 20
PER_MESSAGE = 10  # a log may repeat a message with ever other values


@dataclass(slots=True)
class Match:
    """One message with its values, as often as it occurs."""

    rules: tuple[AnyRule, ...]  # several families may say the same
    message: str  # as in Rule.upstream
    names: tuple[str, ...]
    values: tuple[str, ...]
    excerpt: str
    line: int  # of the first occurrence, from 1
    weight: int
    complete: bool
    from_source: bool  # a line of source code that a traceback shows, not the message itself
    occurrences: int = 1


class _Anchored(NamedTuple):
    template: Template
    number: int  # of the literal that holds the anchor
    offset: int  # of the anchor in it
    head: str  # what of that literal must be there, even if the text breaks off
    rules: tuple[AnyRule, ...]


def find_messages(pieces: Iterable[str]) -> list[Match]:
    """The messages in a text that comes in pieces, the most telling first."""
    found: dict[tuple[str, tuple[str, ...], bool], Match] = {}
    kinds: Counter[tuple[str, bool]] = Counter()
    for window, span, anchored in _spans(pieces):
        kind = (anchored.template.text, _from_source(window, span))
        key = (kind[0], span.values, kind[1])
        if key in found:
            found[key].occurrences += 1
        elif kinds[kind] < PER_MESSAGE:
            kinds[kind] += 1
            found[key] = _match(window, span, anchored, from_source=kind[1])
    matches = list(found.values())
    if not all(each.from_source for each in matches):
        matches = [each for each in matches if not each.from_source]
    return sorted(matches, key=lambda each: (not each.complete, -each.weight, each.line))


def _match(window: Window, span: Span, anchored: _Anchored, *, from_source: bool) -> Match:
    template = anchored.template
    return Match(
        rules=anchored.rules,
        message=template.text,
        names=template.names,
        values=span.values,
        excerpt=window.excerpt(span.begin, span.end),
        line=window.line_of(span.begin),
        weight=span.weight,
        complete=span.complete,
        from_source=from_source,
    )


def _from_source(window: Window, span: Span) -> bool:
    if window.before(span.begin).endswith(('("', "('", 'f"', "f'")):
        return True
    source = window.plain[window.place(span.begin) : window.place(span.end - 1) + 2]
    return "{" in source and not any(char.isdigit() for value in span.values for char in value)


def _spans(pieces: Iterable[str]) -> Iterator[tuple[Window, Span, _Anchored]]:
    """Matches that lie in no better match, in the order of the text."""
    for window, begin, end in _windows(pieces):
        best: Span | None = None
        for span, anchored in sorted(_candidates(window), key=_by_place):
            if best is not None and span.end <= best.end and not _as_good(span, best):
                continue
            if best is None or span.end > best.end:
                best = span
            if begin <= span.begin < end:
                yield window, span, anchored


def _by_place(candidate: tuple[Span, _Anchored]) -> tuple[int, ...]:
    span, _ = candidate
    return span.begin, -span.end, -span.complete, -span.weight


def _as_good(span: Span, best: Span) -> bool:
    """Of a text that breaks off, several messages may be the beginning."""
    return (span.begin, span.end, span.weight, span.complete) == (best.begin, best.end, best.weight, best.complete)


def _candidates(window: Window) -> Iterator[tuple[Span, _Anchored]]:
    text = window.squeezed
    for gram, group in _index().items():
        place = text.find(gram)
        while place >= 0:
            for each in group:
                begin = place - each.offset
                if begin >= 0 and text.startswith(each.head, begin):
                    span = each.template.at(window, each.number, begin)
                    if span is not None:
                        yield span, each
            place = text.find(gram, place + 1)


def _windows(pieces: Iterable[str]) -> Iterator[tuple[Window, int, int]]:
    """Overlapping windows, and the squeezed positions in each that no other window answers for."""
    raw, line, seen = "", 1, 0  # seen: characters of raw that the window before answered for
    for piece in pieces:
        raw += piece
        if len(raw) < PIECE:
            continue
        keep = _cut(raw, len(raw) - OVERLAP)
        yield _window(raw, line, seen, keep)
        start = _cut(raw, keep - OVERLAP)
        line += raw.count("\n", 0, start)
        raw, seen = raw[start:], keep - start
    if raw:
        yield _window(raw, line, seen, len(raw))


def _cut(raw: str, place: int) -> int:
    """The nearest beginning of a line before ``place``; in the middle of a very long line, ``place``."""
    newline = raw.rfind("\n", max(0, place - OVERLAP), place)
    return newline + 1 if newline >= 0 else place


def _window(raw: str, line: int, seen: int, keep: int) -> tuple[Window, int, int]:
    window = Window(raw, line)
    return window, len(Window(raw[:seen]).squeezed), len(window.squeezed) - len(Window(raw[keep:]).squeezed)


@cache
def _index() -> dict[str, list[_Anchored]]:
    """Templates by an anchor: eight characters that occur in their beginning, in as few kinds as possible.

    Few anchors, since each costs a search through the whole text. In the beginning, so that a message is found whose
    end is missing.
    """
    rules: dict[str, dict[str, AnyRule]] = defaultdict(dict)
    for rule in every_rule():
        for text in rule.upstream:
            rules[text][rule.code] = rule
    grams = {text: dict(_grams(parse(text))) for text in rules if parse(text).weight >= LITERAL_CHARS}
    index: dict[str, list[_Anchored]] = {}
    while grams:
        counts = Counter(gram for found in grams.values() for gram in found)
        anchor = min(counts, key=lambda gram: (-counts[gram], gram))
        covered = [text for text, found in grams.items() if anchor in found]
        index[anchor] = [
            _anchored(parse(text), *grams.pop(text)[anchor], tuple(rules[text].values())) for text in covered
        ]
    return index


def _grams(template: Template) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each possible anchor with its place: number of the literal and offset in it."""
    used = 0
    for number, literal in enumerate(template.literals):
        for offset in range(len(literal) - GRAM + 1):
            if used + offset + GRAM <= TRUNCATED_CHARS:
                yield literal[offset : offset + GRAM], (number, offset)
        used += len(literal)


def _anchored(template: Template, number: int, offset: int, rules: tuple[AnyRule, ...]) -> _Anchored:
    earlier = sum(map(len, template.literals[:number]))
    head = template.literals[number][: max(TRUNCATED_CHARS - earlier, offset + GRAM)]
    return _Anchored(template, number, offset, head, rules)
