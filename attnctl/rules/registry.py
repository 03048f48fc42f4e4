"""All rules by code: found by walking ``attnctl.rules.general``, ``attnctl.rules.form`` and the families."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from functools import cache
from string import ascii_uppercase
from typing import TypeAlias

from attnctl.errors import UsageError
from attnctl.rules import form, general
from attnctl.rules.form import FormRule
from attnctl.rules.general import target
from attnctl_kernels.contract import join_words
from attnctl_kernels.families import family_names, get_family
from attnctl_kernels.rule import Rule, rules_in

AnyRule: TypeAlias = Rule | FormRule


@cache
def general_rules() -> tuple[Rule, ...]:
    """The rules that hold for every family, by code."""
    return tuple(sorted(rules_in(general.__name__), key=lambda each: each.code))


@cache
def target_rules() -> tuple[Rule, ...]:
    """Those that must hold before a family may be asked for its defaults."""
    return tuple(rules_in(target.__name__))


@cache
def form_rules() -> tuple[FormRule, ...]:
    """The faults of files and fields, by code."""
    modules = [importlib.import_module(f"{form.__name__}.{info.name}") for info in pkgutil.iter_modules(form.__path__)]
    found = {each.code: each for module in modules for each in vars(module).values() if isinstance(each, FormRule)}
    return tuple(found[code] for code in sorted(found))


def every_rule() -> Iterator[AnyRule]:
    """Every rule, also where two have the same code."""
    yield from form_rules()
    yield from general_rules()
    for name in family_names():
        try:
            family = get_family(name)
        except Exception:  # noqa: BLE001, S112 - it may come from anywhere; a profile of it gets PROFILE007
            continue
        yield from family.rules()


@cache
def all_rules() -> dict[str, AnyRule]:
    """Code -> rule. Families that share rules share them here too."""
    return {each.code: each for each in every_rule()}


def aliases() -> dict[str, AnyRule]:
    """Codes of a family's own numbering -> the general rule that says the same for all."""
    return {alias: each for each in all_rules().values() for alias in each.aliases}


def find_rule(code: str) -> AnyRule:
    """The rule with this code or alias, in any case.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    rules = all_rules()
    found = rules.get(code.strip().upper()) or aliases().get(code.strip().upper())
    if found is not None:
        return found
    named = [each.code for each in rules.values() if each.name == code.strip().lower()]
    near = named or _nearest_codes(code.strip().upper(), (*rules, *aliases()))
    hint = f"did you mean {join_words(near)}? " if near else ""
    raise UsageError(f"no rule has the code {code!r}", f"{hint}attnctl explain --list prints all codes")


def _nearest_codes(code: str, known: Sequence[str]) -> list[str]:
    """At most three: PAL-B003 for PAL-B3, then what begins alike, then what is spelled alike."""
    same = [each for each in known if _bare(each) == _bare(code)]
    if same:
        return same
    alike = {each: _begins_alike(each, code) for each in known}
    longest = max(alike.values(), default=0)
    if longest and longest >= min(3, len(code) - len(code.lstrip(ascii_uppercase))):
        return [each for each in known if alike[each] == longest][:3]
    import difflib  # noqa: PLC0415 - only for codes that are wrong

    return difflib.get_close_matches(code[:64], known, 3, 0.6)


def _bare(code: str) -> str:
    """Without dashes and leading zeros."""
    return re.sub(r"[^A-Z0-9]|(?<![0-9])0+", "", code)


def _begins_alike(left: str, right: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
