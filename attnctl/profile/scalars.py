"""What a plain YAML scalar means, where every version of YAML agrees; what is wrong with it, where they do not.

PyYAML reads YAML 1.1, editors and most other readers 1.2. A profile means the same to all of them: a spelling that
they read differently (``off``, ``1e-3``, ``0200``, ``12:30``) is refused, with the spelling to use instead. So are
numbers that are not decimal (``0x80``, ``1_024``), dates, and numbers that no field can hold.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

MAX_INTEGER = 2**63 - 1

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {form: word == "true" for word in ("true", "false") for form in (word, word.capitalize(), word.upper())}
_BOOLEAN_WORDS = {
    form: word in ("y", "yes", "on")
    for word in ("y", "n", "yes", "no", "on", "off")
    for form in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")

Kind = Literal["boolean word", "number", "date"]


_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_BASED = re.compile(r"[-+]?0(?:x[0-9a-fA-F_]+|o[0-7_]+|b[01_]+)")
_EXPONENT = re.compile(r"([-+]?)([0-9]*)\.?([0-9]*)[eE]([-+]?[0-9]+)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_REFUSED: tuple[tuple[re.Pattern[str], Kind, str], ...] = (
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"),
        "date",
        "is a date in YAML 1.1 and text in YAML 1.2",
    ),
    (_BASE_60, "number", "is a number in base 60 in YAML 1.1 and text in YAML 1.2"),
    (_BASED, "number", "is not written in decimal"),
    (
        re.compile(r"[-+]?0[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"),
        "number",
        "has a leading zero, which makes it octal in YAML 1.1",
    ),
    (
        re.compile(r"[-+]?[0-9]+_[0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"),
        "number",
        "has an underscore, which only YAML 1.1 reads as a number",
    ),
    (
        re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"),
        "number",
        "is text in YAML 1.1 and a number in YAML 1.2",
    ),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), "number", "is not a finite number"),
)


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A spelling that is refused. ``meant`` holds what it may have meant, likeliest first."""

    text: str
    kind: Kind
    fault: str
    meant: tuple[bool | int | float, ...] = ()

    @property
    def spelled(self) -> list[str]:
        """How to write what is meant; an exponent stays one."""
        parts = _EXPONENT.fullmatch(self.text)
        if not (parts and self.meant):
            return [spell(each) for each in self.meant]
        sign, whole, fraction, power = parts.groups()
        signed = power if power[0] in "+-" else f"+{power}"
        return [f"{sign}{whole.lstrip('0') or '0'}.{fraction or '0'}e{signed}"]


def resolve(text: str) -> Any:
    """The value of a plain scalar: None, a bool, an int, a float, the text itself, or :class:`Ambiguous`."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if text in _BOOLEAN_WORDS:
        fault = "is a boolean in YAML 1.1 and text in YAML 1.2"
        return Ambiguous(text, "boolean word", fault, (_BOOLEAN_WORDS[text],))
    return _number(text) if text[0] in "0123456789+-." else text


def _number(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        # int() refuses thousands of digits with an exception, and no field needs more than 64 bits.
        fits = len(text) <= len(str(MAX_INTEGER)) + 1 and abs(int(text)) <= MAX_INTEGER
        return int(text) if fits else Ambiguous(text, "number", f"is larger than {MAX_INTEGER}")
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if isfinite(number) else Ambiguous(text, "number", "is larger than any float")
    for pattern, kind, fault in _REFUSED:
        if pattern.fullmatch(text):
            return Ambiguous(text, kind, fault, _meanings(text) if kind == "number" else ())
    return text


def _meanings(text: str) -> tuple[int | float, ...]:
    """What a number may have been meant to be, likeliest first."""
    if _BASE_60.fullmatch(text):
        return ()
    if _BASED.fullmatch(text):
        return _numbers(text, 0)
    octal = _numbers(text, 8) if _OCTAL.fullmatch(text) else ()
    return tuple(dict.fromkeys(_numbers(text) + octal))


def _numbers(text: str, base: int = 10) -> tuple[int | float, ...]:
    """What ``text`` is as a number, or nothing where it is none or is out of bounds."""
    digits = text.replace("_", "")
    if len(digits) > 40:
        return ()
    try:
        value = int(digits, base)
    except ValueError:
        try:
            value_float = float(digits) if base == 10 else float("nan")
        except ValueError:
            return ()
        return (value_float,) if isfinite(value_float) else ()
    return (value,) if abs(value) <= MAX_INTEGER else ()


def spell(value: Any) -> str:
    """``value`` as a profile writes it: a spelling that every version of YAML reads alike."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return _spell_float(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(spell(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {spell(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and resolve(value) != value:
        return f'"{value}"'
    return str(value)


def _spell_float(value: float) -> str:
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{power if power[0] in '+-' else '+' + power}"
