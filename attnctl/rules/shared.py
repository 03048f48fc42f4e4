"""Rules that do not look at the lengths say the same about every length of a profile: they are asked once.

A profile may list thousands of lengths. With the first, each rule gets a problem that notes whether the rule read a
length, or anything that could hold one; a rule that did not is not asked again while the rest of the case stays as it
was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.rule import Rule, Violation

Broken = tuple[Rule, Violation]
_LENGTHS = {"seqlen_q", "seqlen_k"}
_HARMLESS = (set(Problem.model_fields) - _LENGTHS) | {"element_bytes"}
_looked: list[str] = []


class _Watched(Problem):
    def __getattribute__(self, name: str) -> Any:
        if name not in _HARMLESS:
            _looked.append(name)
        return super().__getattribute__(name)


@dataclass(slots=True)
class _Known:
    case: Case
    rules: Sequence[Rule]
    of_lengths: tuple[Rule, ...]  # to be asked each time
    said: tuple[Broken, ...]  # by the others


class SharedAnswers:
    """For the cases of one profile, pass by pass."""

    def __init__(self) -> None:
        self.known: dict[object, _Known] = {}

    def violations(self, case: Case, rules: Sequence[Rule]) -> Iterator[Broken]:
        """What ``rules`` say about ``case``; those that said it before are not asked again."""
        key = (case.pass_name, id(rules))
        known = self.known.get(key)
        if known is None or known.rules is not rules or not _alike(known.case, case):
            known = self.known[key] = _ask(case, rules)
        yield from known.said
        for rule in known.of_lengths:
            for violation in rule.check(case):
                yield rule, violation


def _alike(first: Case, other: Case) -> bool:
    """Whether they are cases of one profile that differ in their lengths alone."""
    return (
        first.config == other.config
        and first.sparse_block == other.sparse_block
        and first.configs == other.configs
        and first.sparse_blocks == other.sparse_blocks
    )


def _ask(case: Case, rules: Sequence[Rule]) -> _Known:
    watched = replace(case, problem=_Watched.model_construct(**dict(case.problem)))
    of_lengths: list[Rule] = []
    said: list[Broken] = []
    for rule in rules:
        _looked.clear()
        found = [(rule, violation) for violation in rule.check(watched)]
        if _looked:
            of_lengths.append(rule)
        else:
            said += found
    return _Known(case, rules, tuple(of_lengths), tuple(said))
