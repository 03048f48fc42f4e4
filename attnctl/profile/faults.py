"""What pydantic says about a file, in the words of the profile: findings with place, value, limit and nearest name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from attnctl.profile.document import MAX_FAULTS, Document, FieldPath, dotted
from attnctl.profile.model import GateSection, LayoutSection, MaskSection, ProblemSection, Profile, SparseBlocks
from attnctl.profile.names import nearest
from attnctl.profile.places import place_of, value_at, written_path
from attnctl.profile.scalars import Ambiguous, spell
from attnctl.rules.finding import Finding
from attnctl.rules.form import FormRule, fields
from attnctl_kernels.contract import join_words

INTEGER, NUMBER, SWITCH, TEXT = "a whole number", "a number", "true or false", "text"
PAIR, LIST, MAPPING = "a pair [q, kv]", "a list", "a mapping"
LENGTHS = "a whole number or a list of them"
_WHOLE = (INTEGER, LENGTHS)
DURATION = "a duration such as 90s, 10m or 1h"

_WANTED = {
    "int_type": INTEGER,
    "int_from_float": INTEGER,
    "float_type": NUMBER,
    "bool_type": SWITCH,
    "string_type": TEXT,
    "tuple_type": LIST,
    "list_type": LIST,
    "dict_type": MAPPING,
    "model_type": MAPPING,
    "model_attributes_type": MAPPING,
}
_LIMITS = {
    "greater_than": ("gt", "must be greater than {}", "write a number greater than {}"),
    "greater_than_equal": ("ge", "must be at least {}", "write {} or more"),
    "less_than": ("lt", "must be less than {}", "write a number less than {}"),
    "less_than_equal": ("le", "must be at most {}", "write {} or less"),
    "multiple_of": ("multiple_of", "must be a multiple of {}", "write a multiple of {}"),
    "too_short": ("min_length", "must hold at least {}", "add a value, or remove the line"),
    "too_long": ("max_length", "may hold at most {}", "shorten the list, or split the profile"),
    "finite_number": ("", "must be finite", "write a finite number"),
}
_EXAMPLES = {
    "problem": "{seq_len: 4096, num_heads_q: 16, head_dim: 128}",
    "mask": "{pattern: causal}",
    "num_heads_q": "16",
    "head_dim": "128",
    "family": "blocks",
}
_REQUIRED = _EXAMPLES.keys() - {"mask"}
_FORMS = {"max_regression": "a percentage such as 3%"}
_SECTIONS: Mapping[str, Collection[str]] = {
    "problem": ProblemSection.model_fields,
    "mask": MaskSection.model_fields,
    "layout": LayoutSection.model_fields,
    "gate": GateSection.model_fields,
    "sparse_block": [*SparseBlocks.model_fields, "q", "kv"],
}
TOP_LEVEL = [field.alias or name for name, field in Profile.model_fields.items()]


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding, and what its field wants: spellings that YAML readers read differently need to know."""

    path: FieldPath
    finding: Finding
    wanted: str = ""


class Faults:
    """Collects the faults of one document, one per place and kind."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Fault] = []

    @property
    def full(self) -> bool:
        """Looking up the nearest name takes time, and nobody reads hundreds of findings."""
        return len(self.found) > MAX_FAULTS

    def add(
        self, rule: FormRule, path: FieldPath, *facts: object, wanted: str = "", at: FieldPath | None = None
    ) -> None:
        """Report a fault of the field ``path``; ``at`` is the place to show where the field is not written."""
        place = place_of(self.document, path if at is None else at)
        finding = rule.finding(self.document.path, place, dotted(path), *facts)
        self.found.append(Fault(path, finding, wanted))

    def unknown_key(self, path: FieldPath, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> None:
        """A key that the mapping around it does not have."""
        if self.full:
            return
        name = str(path[-1])
        where = f" in `{dotted(path[:-1])}`" if len(path) > 1 else ""
        advice = _place_for(name, known, elsewhere)
        before, colon, after = name.partition(":")
        if colon and value_at(self.document, path) is None:
            advice = f"write `{shorten(before)}: {shorten(after)}` with a space after the colon"
        place = self.document.keys.get(path) or place_of(self.document, path)
        facts = (shorten(name), where, advice)
        self.found.append(Fault(path, fields.field_unknown.finding(self.document.path, place, dotted(path), *facts)))

    def unknown_value(self, path: FieldPath, known: Sequence[Any]) -> None:
        """A value that is none of the known ones."""
        value = value_at(self.document, path)
        texts = [each for each in known if isinstance(each, str)]
        near = nearest(value, texts, 2) if isinstance(value, str) else ()
        advice = f"write {join_words(near or [spell(each) for each in known])}"
        facts = (dotted(path), self.shown(path), join_words([spell(each) for each in known], "and"), advice)
        self.add(fields.value_unknown, path, *facts, wanted=join_words([spell(each) for each in known]))

    def wrong_type(self, path: FieldPath, wanted: str) -> None:
        value = value_at(self.document, path)
        advice = _converted(value, wanted, self.document.written.get(path), required=str(path[-1]) in _REQUIRED)
        facts = (dotted(path), wanted, self.shown(path), advice)
        self.add(fields.value_of_wrong_type, path, *facts, wanted=wanted)

    def shown(self, path: FieldPath) -> str:
        """The value as the user wrote it, or what it is."""
        value = value_at(self.document, path)
        if isinstance(value, str):
            return value if path in self.document.ambiguous else json.dumps(shorten(value), ensure_ascii=False)
        if value is None:
            return "nothing"
        if isinstance(value, dict):
            return "a mapping"
        if isinstance(value, tuple):
            return shorten(spell(value)) if len(value) <= 4 else f"a list of {len(value)} values"
        return self.document.written.get(path) or spell(value)

    def of_model(
        self,
        error: ValidationError,
        *,
        below: FieldPath = (),
        known: Collection[str] = (),
        elsewhere: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Everything that a model refused. ``below`` is where the model's mapping stands in the file."""
        for each in error.errors(include_url=False, include_input=False)[: MAX_FAULTS + 1]:
            self.of_error(each, (*below, *each["loc"]), known, elsewhere)

    def of_error(
        self,
        error: ErrorDetails,
        location: FieldPath,
        known: Collection[str],
        elsewhere: Mapping[str, Collection[str]] | None,
    ) -> None:
        """One of pydantic's errors, about the field at ``location``."""
        kind, context = error["type"], error.get("ctx", {})
        path = written_path(self.document, location)
        if kind == "extra_forbidden":
            section = _SECTIONS.get(str(path[0]), ()) if len(path) > 1 else TOP_LEVEL
            self.unknown_key(path, known or section, _SECTIONS if elsewhere is None else elsewhere)
        elif kind == "missing" and isinstance(location[-1], int):
            self.wrong_type(path, PAIR)
        elif kind == "missing":
            name = str(location[-1])
            example = f"`{name}: {_EXAMPLES[name]}`" if name in _EXAMPLES else f"`{name}`"
            missing = (*path, name)
            self.add(fields.field_missing, missing, dotted(missing), f"add, for example, {example}", at=path)
        elif kind in _WANTED:
            self.wrong_type(path, _wanted(kind, path))
        elif kind in ("literal_error", "enum"):
            self.unknown_value(path, _expected(str(context["expected"])))
        else:
            self._out_of_bounds(kind, path, context, error["msg"])

    def _out_of_bounds(self, kind: str, path: FieldPath, context: Mapping[str, Any], message: str) -> None:
        name, value = dotted(path), value_at(self.document, path)
        limit, advice = _limit(kind, context)
        if kind == "too_short" and isinstance(value, tuple) and len(value) >= context["min_length"]:
            return  # its items are at fault, and have findings of their own
        if kind == "too_long" and context.get("max_length") == 2:
            self.wrong_type(path, PAIR)
        elif limit:
            shown = f"a list of {len(value)}" if isinstance(value, tuple) else self.shown(path)
            self.add(fields.value_out_of_bounds, path, name, shown, limit, advice, wanted=limit)
        else:
            wanted = _FORMS.get(str(path[-1]) if path else "", "")
            problem = f"not {wanted}" if wanted else message[:1].lower() + message[1:]
            advice = f"write {wanted}" if wanted else "change it to a value that the family takes"
            shown = self.shown(path) if path else "refused"
            self.add(fields.value_malformed, path, name or "the profile", shown, problem, advice, wanted=wanted)


def advise(ambiguous: Ambiguous, wanted: str) -> str:
    """What to write instead of a spelling that YAML readers read differently, for a field that wants ``wanted``."""
    numbers = [each for each in ambiguous.meant if not isinstance(each, bool)]
    quoted = f"quote it: {json.dumps(shorten(ambiguous.text))}"
    if wanted == TEXT:
        return quoted
    if wanted in _WHOLE:
        whole = [int(each) for each in numbers if float(each).is_integer()]
        return f"write {join_words(whole)}" if whole else f"{wanted} is wanted here, in decimal"
    if wanted == NUMBER:
        return f"write {join_words(ambiguous.spelled)}" if numbers else "a decimal number is wanted here"
    if wanted == SWITCH:
        switches = [spell(each) for each in ambiguous.meant if isinstance(each, bool)]
        return f"write {join_words(switches or ['true', 'false'])}"
    if wanted:
        return f"{wanted} is wanted here"
    return f"write {join_words(ambiguous.spelled)}, or {quoted}" if ambiguous.meant else quoted


def shorten(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _place_for(name: str, known: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> str:
    """The known name that an unknown one means, here or in another section."""
    near = nearest(name, known)
    if near and near[0] == name:
        return "give `q` and `kv`, or a pair per pass"
    if near:
        return f"write `{near[0]}`"
    for section, names in elsewhere.items():
        there = nearest(name, names)
        if there and names is not known:
            return f"write `{there[0]}` below `{section}`"
    return f"remove it; known here: {', '.join(known)}" if known else "remove it"


def _converted(value: Any, wanted: str, written: str | None, *, required: bool) -> str:
    """How to write ``value`` as what is wanted, where that is plain."""
    if value is None:
        return "give a value" if required else "give a value, or remove the line"
    if isinstance(value, str):
        bare = value.strip()
        numeric = re.fullmatch(r"-?[1-9][0-9]{0,17}", bare) and wanted in (*_WHOLE, NUMBER)
        if numeric or (wanted == SWITCH and bare in ("true", "false")):
            return f"write {bare} without quotes"
    proposed = wanted
    if wanted == TEXT and isinstance(value, int | float):
        return f'quote it: "{written or spell(value)}"'
    if wanted in _WHOLE and isinstance(value, float) and value.is_integer():
        proposed = str(int(value))
    elif wanted == PAIR:
        size = value if isinstance(value, int) and value > 0 else 128
        proposed = f"[{size}, {size}]"
    elif wanted == LIST and not isinstance(value, dict):
        proposed = f"[{spell(value)}]"
    return f"write {proposed}"


def _wanted(kind: str, path: FieldPath) -> str:
    """What a field wants; some say more than their type."""
    if kind == "string_type":
        return _FORMS.get(str(path[-1]), TEXT)
    if kind == "tuple_type" and path[0] == "problem":
        return LENGTHS
    pair = path[0] == "sparse_block" or path[-1] == "block_size"
    return PAIR if pair and kind in ("tuple_type", "model_type") else _WANTED[kind]


def _expected(text: str) -> list[Any]:
    """Pydantic's ``'a', 'b' or 'c'`` as values."""
    values: list[Any] = []
    for word in re.findall(r"'(?:[^'\\]|\\.)*'|[^\s,]+", text):
        try:
            values.append(ast.literal_eval(word))
        except (ValueError, SyntaxError):
            continue  # the word "or"
    return values


def _limit(kind: str, context: Mapping[str, Any]) -> tuple[str, str]:
    """The limit and how to stay within it; empty where ``kind`` is not about a limit."""
    if kind not in _LIMITS:
        return "", ""
    key, limit, advice = _LIMITS[kind]
    value = spell(context.get(key))
    return limit.format(value), advice.format(value)
