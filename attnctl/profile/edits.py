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
        start, end = document.values[path], document.ends.get(path)
        if end is None:
            return None
        written = document.written.get(path) or value_at(document, path)
        text = spell(value)
        # A key without a value: `tile_m:` ends where its value would begin, behind the colon.
        return Edit(start, end, f" {text}" if start == end and written is None else text)
    return _insertion(document, path, value)


def _insertion(document: Document, path: FieldPath, value: Any) -> Edit | None:
    """A new entry, before the first of the nearest mapping around it that has one."""
    if value is None or not path or any(isinstance(part, int) for part in path):
        return None
    depth = next((each for each in range(len(path) - 1, -1, -1) if _is_mapping(document, path[:each])), None)
    if depth is None:
        return None
    around, (name, *inner) = path[:depth], path[depth:]
    for part in reversed(inner):
        value = {part: value}
    first = next((place for key, place in document.keys.items() if key[:-1] == around), None)
    if first is None:
        return None
    entry = f"{name}: {spell(value)}"
    flow = around in document.ends
    return Edit(first, first, f"{entry}, " if flow else f"{entry}\n{' ' * (first[1] - 1)}")


def _is_mapping(document: Document, path: FieldPath) -> bool:
    if path and path not in document.values:
        return False
    value = value_at(document, path)
    return isinstance(value, dict) and bool(value)
