"""What a fix changes in the text of a profile: for formats and editors that can apply it."""

from __future__ import annotations

from typing import Any

from attnctl.profile.document import Document, FieldPath
from attnctl.profile.places import parse_field, value_at
from attnctl.profile.scalars import spell
from attnctl.rules.finding import Edit


def edit_for(document: Document, field: str, value: Any) -> Edit | None:
    """How to write ``value`` at ``field``; None where that is not one edit, or the field is none of the file's."""
    if field.startswith("--"):
        return None
    path = parse_field(field)
    if path in document.values:
        return _replacement(document, path, value)
    return None if value is None else _insertion(document, path, value)


def _replacement(document: Document, path: FieldPath, value: Any) -> Edit | None:
    start, end = document.values[path], document.ends.get(path)
    if end is None:
        return None
    text = spell(value)
    # A key without a value: `tile_m:` ends where its value would begin, behind the colon.
    return Edit(start, end, f" {text}" if start == end else text)


def _insertion(document: Document, path: FieldPath, value: Any) -> Edit | None:
    """A new entry of the nearest mapping around it: before its first, or in the place of one that is empty."""
    if not path or any(isinstance(part, int) for part in path):
        return None
    depth = next(each for each in range(len(path) - 1, -1, -1) if not each or path[:each] in document.values)
    around, (name, *inner) = path[:depth], path[depth:]
    for part in reversed(inner):
        value = {part: value}
    if not value_at(document, around):
        return _replacement(document, around, {name: value})
    first = next((place for key, place in document.keys.items() if key[:-1] == around), None)
    if first is None:  # it is no mapping
        return None
    entry = f"{name}: {spell(value)}"
    return Edit(first, first, f"{entry}, " if around in document.ends else f"{entry}\n{' ' * (first[1] - 1)}")
