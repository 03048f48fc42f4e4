"""A YAML file as plain data, with the place of every key and value, and what is wrong with it as findings.

The reader walks PyYAML's events, not its nodes or objects: nothing is built that the limits below do not allow, nothing
recurses, and no tag is ever followed. Lists become tuples. A scalar that YAML readers read differently stays text and
is kept in ``ambiguous``: the loader says what to write once it knows what the field wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from attnctl.errors import UsageError
from attnctl.profile.scalars import Ambiguous, resolve
from attnctl.rules.finding import Finding
from attnctl.rules.form import FormRule, files

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_DEPTH = 32
MAX_FAULTS = 100
# YAML 1.1 breaks lines here, YAML 1.2 and most editors do not: what stands below would have another line.
_BREAKS = "\x85\u2028\u2029"
_LINE_END = re.compile(r"\r\n|\r|\n")  # where both do

Place: TypeAlias = tuple[int, int]  # line and column, from 1
FieldPath: TypeAlias = tuple[str | int, ...]

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Document:
    """What a file says. ``data`` is None when it cannot be used at all; ``findings`` says why."""

    path: str
    data: dict[str, Any] | None = None
    start: Place = (1, 1)
    keys: dict[FieldPath, Place] = field(default_factory=dict)
    values: dict[FieldPath, Place] = field(default_factory=dict)
    ends: dict[FieldPath, Place] = field(default_factory=dict)  # of values that end on their own: not of block style
    written: dict[FieldPath, str] = field(default_factory=dict)  # numbers as they stand in the file: 3.10
    ambiguous: dict[FieldPath, Ambiguous] = field(default_factory=dict)
    flawed: set[FieldPath] = field(default_factory=set)  # places that have a finding already
    findings: list[Finding] = field(default_factory=list)


def dotted(path: FieldPath) -> str:
    """``("problem", "seq_len", 1)`` -> ``problem.seq_len[1]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def read(path: Path) -> Document:
    """Read and parse ``path``.

    Raises:
        UsageError: there is no such file, or it may not be read.
    """
    document = Document(str(path))
    try:
        size = path.stat().st_size
        data = b""
        if size <= MAX_BYTES:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)  # a pipe has no size, and a file may grow
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder, not a profile") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if max(size, len(data)) > MAX_BYTES:
        what = f"{size:,} bytes" if size > MAX_BYTES else f"more than {MAX_BYTES:,} bytes"
        document.findings.append(files.file_too_large.finding(document.path, (1, 1), "", what, f"{MAX_BYTES:,} bytes"))
        return document
    return parse(data, document)


def parse(data: bytes, document: Document) -> Document:
    """Fill ``document`` from the bytes of a file."""
    reader = _Reader(document)
    try:
        reader.run(_decode(data))
    except _Stop as stop:
        document.findings.append(stop.finding(document.path))
        document.data = None
    except yaml.YAMLError as error:
        document.findings.append(_syntax(document.path, error, data))
        document.data = None
    return document


class _Stop(Exception):
    """A fault after which the rest of the file is not read."""

    def __init__(self, rule: FormRule, place: Place, *facts: object) -> None:
        super().__init__(rule.code)
        self.rule, self.place, self.facts = rule, place, facts

    def finding(self, path: str) -> Finding:
        return self.rule.finding(path, self.place, "", *self.facts)


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    path: FieldPath
    items: list[Any] | dict[str, Any]
    key: str | None = None
    repeated: bool = False  # the value of a repeated key is read, and dropped
    dropped: bool = False  # this is such a value, or inside one
    flow: bool = False  # written in brackets


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: list[_Open] = []
        self.count = 0

    def run(self, text: str) -> None:
        documents = 0
        for event in _events(text):
            place = _place(event.start_mark)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.fault(files.several_documents, (), place)
                    return
            elif isinstance(event, yaml.CollectionStartEvent):
                self.begin(event, place)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.end(event)
            elif isinstance(event, yaml.AliasEvent):
                self.alias(event, place)
            elif isinstance(event, yaml.ScalarEvent):
                self.scalar(event, place)
        if not documents:
            raise _Stop(files.file_without_content, (1, 1))

    def fault(self, rule: FormRule, path: FieldPath, place: Place, *facts: object) -> None:
        """Report once per place, and go on."""
        if path in self.document.flawed and path:
            return
        self.document.flawed.add(path)
        if len(self.document.findings) >= MAX_FAULTS:
            raise _Stop(files.file_too_large, place, f"more than {MAX_FAULTS} faults of form", f"{MAX_FAULTS} faults")
        self.document.findings.append(rule.finding(self.document.path, place, dotted(path), *facts))

    def here(self) -> FieldPath:
        """The path of the value that comes next."""
        if not self.open:
            return ()
        top = self.open[-1]
        return (*top.path, len(top.items) if isinstance(top.items, list) else str(top.key))

    def dropped(self) -> bool:
        """Whether the value that comes next is dropped: its places would be those of fields that are not there."""
        return bool(self.open) and (self.open[-1].dropped or self.open[-1].repeated)

    def expects_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].items, dict) and self.open[-1].key is None

    def add(self, value: Any, place: Place) -> None:
        """Put a value where it belongs."""
        self.tally(place)
        if not self.open:
            self.root(value, place)
            return
        top = self.open[-1]
        if isinstance(top.items, list):
            top.items.append(value)
        else:
            if not top.repeated:
                top.items[str(top.key)] = value
            top.key = None

    def tally(self, place: Place) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _Stop(files.file_too_large, place, f"more than {MAX_VALUES:,} values", f"{MAX_VALUES:,} values")

    def root(self, value: Any, place: Place) -> None:
        self.document.start = place
        if isinstance(value, dict):
            self.document.data = value
            return
        if value is None:  # YAML places what is not there behind the end
            raise _Stop(files.file_without_content, (1, 1))
        missing_space = isinstance(value, str) and ":" in value and " " not in value
        advice = "write a space after the colon" if missing_space else "write `family: NAME` at the top"
        found = "a list" if isinstance(value, tuple) else "a single value"
        raise _Stop(files.not_a_mapping, place, found, advice)

    def begin(self, event: Any, place: Place) -> None:
        if self.expects_key():
            raise _Stop(files.key_without_name, place)
        if len(self.open) >= MAX_DEPTH:
            raise _Stop(files.nested_too_deep, place, MAX_DEPTH)
        path = self.here()
        self.note(path, place)
        self.refuse_decoration(event, path, place)
        items: list[Any] | dict[str, Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self.open.append(_Open(path, items, dropped=self.dropped(), flow=bool(event.flow_style)))
        if len(self.open) == 1:
            self.document.start = place

    def end(self, event: Any) -> None:
        closed = self.open.pop()
        if closed.flow and not closed.dropped:
            self.document.ends.setdefault(closed.path, _place(event.end_mark))
        value = tuple(closed.items) if isinstance(closed.items, list) else closed.items
        self.add(value, self.document.values.get(closed.path, self.document.start))

    def alias(self, event: Any, place: Place) -> None:
        name = f"*{event.anchor}"
        if self.expects_key():
            raise _Stop(files.anchor_or_alias, place, name)
        path = self.here()
        self.note(path, place)
        self.fault(files.anchor_or_alias, path, place, name)
        self.add(None, place)

    def scalar(self, event: Any, place: Place) -> None:
        if self.expects_key():
            self.key(event, place)
            return
        path = self.here()
        self.note(path, place)
        if not self.dropped() and event.style not in ("|", ">"):
            self.document.ends.setdefault(path, _place(event.end_mark))
        self.refuse_decoration(event, path, place)
        value: Any = event.value
        if not event.style and event.tag is None:
            value = resolve(event.value)
            if isinstance(value, Ambiguous):
                if not self.dropped():
                    self.document.ambiguous.setdefault(path, value)
                value = value.text
            elif isinstance(value, int | float) and str(value) != event.value and not self.dropped():
                self.document.written.setdefault(path, event.value)
        self.add(value, place)

    def key(self, event: Any, place: Place) -> None:
        top = self.open[-1]
        name = event.value
        path = (*top.path, name)
        if not name:
            raise _Stop(files.key_without_name, place)
        self.tally(place)
        top.key = name
        top.repeated = name in top.items
        if top.repeated:
            self.document.flawed.discard(path)
            self.fault(files.key_repeated, path, place, name, self.document.keys[path][0])
        elif name == "<<" and not event.style:
            self.fault(files.anchor_or_alias, path, place, name)
        self.document.keys.setdefault(path, place)
        self.refuse_decoration(event, path, place)

    def note(self, path: FieldPath, place: Place) -> None:
        if not self.dropped():
            self.document.values.setdefault(path, place)

    def refuse_decoration(self, event: Any, path: FieldPath, place: Place) -> None:
        """No anchors, no tags."""
        if event.anchor is not None:
            self.fault(files.anchor_or_alias, path, place, f"&{event.anchor}")
        if event.tag is not None:
            self.fault(files.tag, path, place, str(event.tag).replace("tag:yaml.org,2002:", "!!"))


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1


def _events(text: str) -> Iterator[Any]:
    events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
    return events


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Stop(files.not_utf8_text, (1, 1), "it is UTF-16 or UTF-32")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = _LINE_END.split(error.object[: error.start].decode())
        place = (len(before), len(before[-1]) + 1)
        offset = error.start + len(data) - len(error.object)  # the mark of UTF-8 is not part of the text
        raise _Stop(files.not_utf8_text, place, f"byte 0x{data[offset]:02x} at offset {offset}") from None
    for number, line in enumerate(_LINE_END.split(text), 1):
        if not line.isprintable():
            for column, character in enumerate(line, 1):
                if character < " " and character != "\t":
                    raise _Stop(files.not_utf8_text, (number, column), f"control character 0x{ord(character):02x}")
                if character in _BREAKS:
                    raise _Stop(files.not_utf8_text, (number, column), f"line break U+{ord(character):04X}")
    return text


def _syntax(path: str, error: yaml.YAMLError, data: bytes) -> Finding:
    mark, context_mark = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    if context_mark and (mark is None or mark.index >= len(data)):
        mark = context_mark  # a bracket or quote that is never closed: where it opens, not the end of the file
    place = _place(mark) if mark else (1, 1)
    lines = _LINE_END.split(data.decode("utf-8-sig").rstrip("\r\n"))
    if place[0] > len(lines):
        place = (len(lines), len(lines[-1]))  # the end of the file, on a line that an editor shows
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed")
    if "nesting depth" in problem:
        return files.nested_too_deep.finding(path, place, "", MAX_DEPTH)
    context = getattr(error, "context", None)
    message = f"{problem} {context}" if context else problem
    return files.syntax_error.finding(path, place, "", message, _syntax_advice(problem))


def _syntax_advice(problem: str) -> str:
    if "cannot start any token" in problem or "tab character" in problem:
        return "indent with spaces, not tabs, and quote text that starts with @, `, % or a bracket"
    if "mapping values are not allowed" in problem:
        return "quote text that holds `: `, and indent fields of one level alike"
    if "expected" in problem:
        return "close every bracket and quote, put a comma between values, and indent fields of one level alike"
    return "look at this line and the one before it"
