"""Rules: one function each, whose docstring is the page that ``attnctl explain CODE`` prints.

A rule looks at one :class:`~attnctl_kernels.contract.Case` and yields a :class:`Violation` per fault. The same
rules serve ``attnctl validate`` and the sweep, so validity is written once.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from attnctl_kernels.contract import Case, PassName

_FAR = 1024  # as far as a head count would be changed
_LARGEST = 4096  # no tile, and no number of stages, groups or splits, is as large


class Severity(StrEnum):
    ERROR = "error"  # does not run, or runs and is wrong
    WARNING = "warning"  # runs, but slower than it should or not as written


@dataclass(frozen=True, slots=True)
class Fix:
    """A value that makes the rule hold: tests feed it back through the validator."""

    field: str  # as in Violation.field
    value: Any
    price: str = ""  # what it costs: "2.4 % more tokens"


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault at one place.

    ``field`` is a dotted path in the words of the profile: ``problem.seqlen_q``, ``config.tile_m`` (the pass is
    added where the family keeps one config per pass), ``sparse_block``, ``layout.num_blocks``. ``message`` states
    the fault with its numbers and ends without a full stop; ``fixes`` come cheapest first.
    """

    field: str
    message: str
    fixes: tuple[Fix, ...] = ()
    advice: str = ""  # where no single value fixes it


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    name: str  # describes the fault, not the cure
    severity: Severity
    why: str  # one clause, shown after the message
    check: Callable[[Case], Iterable[Violation]]
    page: str
    passes: tuple[PassName, ...] = ("forward", "backward")
    arches: tuple[str, ...] = ()  # empty: all
    versions: tuple[str, ...] = ()  # empty: all
    upstream: tuple[str, ...] = ()  # upstream's messages: {} for values, … after the module that must be named before
    aliases: tuple[str, ...] = ()  # codes in a family's own numbering, of which this rule is the general form

    def applies(self, case: Case) -> bool:
        return self.is_about(case.pass_name, case.arch, case.version)

    def is_about(self, pass_name: PassName, arch: str | None, version: str) -> bool:
        return (
            pass_name in self.passes
            and (not self.arches or arch in self.arches)
            and (not self.versions or version in self.versions)
        )


def rule(
    code: str,
    *,
    why: str,
    severity: Severity = Severity.ERROR,
    passes: tuple[PassName, ...] = ("forward", "backward"),
    arches: tuple[str, ...] = (),
    versions: tuple[str, ...] = (),
    upstream: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> Callable[[Callable[[Case], Iterator[Violation]]], Rule]:
    """Make a generator function a :class:`Rule`; its name is the rule's, its docstring the rule's page."""

    def wrap(check: Callable[[Case], Iterator[Violation]]) -> Rule:
        return Rule(
            code=code,
            name=check.__name__.replace("_", "-"),
            severity=severity,
            why=why,
            check=check,
            page=check.__doc__ or "",
            passes=passes,
            arches=arches,
            versions=versions,
            upstream=upstream,
            aliases=aliases,
        )

    return wrap


def check(case: Case, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Violation]]:
    """Every violation of ``rules`` by ``case``: all of them, not the first."""
    for each in rules:
        if each.applies(case):
            for violation in each.check(case):
                yield each, violation


def rules_in(module_name: str) -> Iterator[Rule]:
    """The rules of a module, or of every module of a package, in order of definition."""
    module = importlib.import_module(module_name)
    for value in vars(module).values():
        if isinstance(value, Rule):
            yield value
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from rules_in(f"{module_name}.{info.name}")


@cache
def rules_of_family(spec_module: str) -> tuple[Rule, ...]:
    """The rules in a family's ``spec`` module and in its ``rules`` module or package, by code."""
    rules_module = f"{spec_module.rpartition('.')[0]}.rules"
    found = list(rules_in(spec_module))
    if importlib.util.find_spec(rules_module):
        found += rules_in(rules_module)
    unique = {each.code: each for each in found}
    return tuple(unique[code] for code in sorted(unique))


def nearest_multiples(value: int, divisor: int) -> tuple[int, ...]:
    """The multiples of ``divisor`` around ``value``: below (if above zero), then above. Empty if it is one."""
    below = value // divisor * divisor
    if below == value:
        return ()
    return (below, below + divisor) if below > 0 else (divisor,)


def multiples_below(value: int, step: int = 1) -> range:
    """The multiples of ``step`` below ``value``, largest first, as far as it is worth looking."""
    return range((min(value, _LARGEST) - 1) // step * step, 0, -step)


def divisors_around(number: int, near: int) -> tuple[int, ...]:
    """The divisors of ``number`` next to ``near``: below, then above, as far as one would go for them."""
    start = min(near, number)
    below = next((each for each in range(start, max(start - _FAR, 0), -1) if number % each == 0), 1)
    above = next((each for each in range(near, min(near + _FAR, number + 1)) if number % each == 0), below)
    return tuple(dict.fromkeys((below, above)))


def length_price(old: int, new: int) -> str:
    """What another sequence length costs: ``2.4 % more tokens``."""
    word = "more" if new > old else "fewer"
    return f"{abs(new - old) / old * 100:.1f} % {word} tokens"


def length_fixes(field: str, length: int, divisor: int) -> tuple[Fix, ...]:
    """The nearest lengths that ``divisor`` divides, cheapest first."""
    nearest = sorted(nearest_multiples(length, divisor), key=lambda each: abs(each - length))
    return tuple(Fix(field, each, length_price(length, each)) for each in nearest)
