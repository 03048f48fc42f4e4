"""From a profile's case to the candidates of its sweep: the family's space, narrowed, minus what the rules forbid."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnctl.errors import UsageError
from attnctl.profile.candidate import case_of, default_candidate, error_rules, profile_candidate
from attnctl_kernels.contract import Candidate, Case, Family, SparseBlock, fingerprint
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Violation, check

LARGEST = 250_000  # combinations; a family's own space has up to 122,880, which take 15 s to hold against the rules
_BLOCK = "sparse_block"  # the one name in a space that is no parameter of the kernel


@dataclass(frozen=True, slots=True)
class Drop:
    """A candidate that breaks a rule, and the first rule that it breaks."""

    candidate: Candidate
    rule: Rule
    violation: Violation


@dataclass(frozen=True, slots=True)
class Space:
    """What may be measured, in measuring order: default and incumbent, then cheapest predicted first."""

    case: Case
    candidates: tuple[Candidate, ...]
    drops: tuple[Drop, ...]
    default: Candidate
    incumbent: Candidate
    labels: Mapping[str, str] = field(default_factory=dict)  # Candidate.key -> "default", "incumbent", "c17", ...
    predicted: Mapping[str, float] = field(default_factory=dict)  # Candidate.key -> the family's predicted cost

    @property
    def size(self) -> int:
        return len(self.candidates) + len(self.drops)

    @property
    def required(self) -> tuple[Candidate, ...]:
        """Default and incumbent, as far as the rules allow them: measured whatever the strategy says."""
        keys = {self.default.key, self.incumbent.key}
        return tuple(each for each in self.candidates if each.key in keys)

    @property
    def fingerprint(self) -> str:
        return fingerprint(sorted(each.key for each in self.candidates))

    def drops_by_rule(self) -> list[tuple[int, Drop]]:
        """How many candidates each rule dropped, with its first drop as the example; most first."""
        counts = Counter(drop.rule.code for drop in self.drops)
        examples = {drop.rule.code: drop for drop in reversed(self.drops)}
        return [(count, examples[code]) for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def build(
    case: Case,
    *,
    sparse_block: SparseBlock | None = None,
    search: Mapping[str, Any] | None = None,
    incumbent: Candidate | None = None,
) -> Space:
    """Every candidate for ``case``.

    Args:
        case: the profile's own config, which the candidates vary.
        sparse_block: the block that the profile fixes; None leaves it to each candidate.
        search: the profile's, as it stands there.
        incumbent: the config in use; the profile's own if there is no tuned one.

    Raises:
        UsageError: ``search`` makes more combinations than anybody could wait for, or names what cannot run.
    """
    family = get_family(case.family)
    default, own = default_candidate(case, sparse_block), profile_candidate(case)
    incumbent = incumbent or own
    values = {**family.space(case.problem, case.pass_name, case.arch), **narrowing(search or {}, family, case)}
    _refuse_what_cannot_run(case, family, values)
    _refuse_what_never_ends(case, values)
    everything = {each.key: each for each in (default, incumbent, own, *_product(case, family, sparse_block, values))}
    first = {default.key, incumbent.key}
    rules = error_rules(case)
    allowed: list[tuple[bool, float, Candidate]] = []
    drops = []
    for candidate in everything.values():
        its_case = case_of(case, candidate)
        broken = next(check(its_case, rules), None)
        if broken:
            drops.append(Drop(candidate, *broken))
        else:
            allowed.append((candidate.key not in first, family.predicted_cost(its_case), candidate))
    ordered = tuple(candidate for *_, candidate in sorted(allowed, key=lambda item: item[:2]))
    labels = {each.key: f"c{number}" for number, each in enumerate(everything.values(), start=1)}
    labels |= {incumbent.key: "incumbent", default.key: "default"}
    predicted = {candidate.key: cost for _, cost, candidate in allowed}
    return Space(case, ordered, tuple(drops), default, incumbent, labels, predicted)


def _refuse_what_cannot_run(case: Case, family: Family, values: Mapping[str, Sequence[Any]]) -> None:
    searched = {name: listed[0] for name, listed in values.items() if name != _BLOCK and listed}
    ignored = family.cannot_run(replace(case, config={**family.of_pass(case.config, case.pass_name), **searched}))
    if ignored:
        raise UsageError(
            f"{family.name} cannot be tuned as written: {ignored}", "remove it, or measure without attnctl"
        )


def _refuse_what_never_ends(case: Case, values: Mapping[str, Sequence[Any]]) -> None:
    count = math.prod(map(len, values.values()))
    if count > LARGEST:
        longest = sorted(values, key=lambda name: -len(values[name]))
        raise UsageError(
            f"search: the {case.pass_name} pass has {count:,} combinations, the limit is {LARGEST:,}",
            "list fewer values: " + ", ".join(f"{name} has {len(values[name])}" for name in longest[:4]),
        )


def narrowing(search: Mapping[str, Any], family: Family, case: Case) -> dict[str, Sequence[Any]]:
    """A profile's ``search`` for one pass: parameter -> values to try in place of the family's."""
    if not family.flat_config:
        section: Mapping[str, Any] = search.get(case.pass_name, {})
        return dict(section)
    elsewhere = {
        name
        for other in family.passes
        if other != case.pass_name
        for name in family.space(case.problem, other, case.arch)
    } - family.space(case.problem, case.pass_name, case.arch).keys()
    return {name: values for name, values in search.items() if name != "budget" and name not in elsewhere}


def _product(
    case: Case, family: Family, sparse_block: SparseBlock | None, values: dict[str, Sequence[Any]]
) -> Iterator[Candidate]:
    blocks = (sparse_block,) if sparse_block else values.pop(_BLOCK, (None,))
    values.pop(_BLOCK, None)
    own = family.of_pass(case.config, case.pass_name)
    for chosen in itertools.product(*values.values()):
        config = family.canonical({**own, **dict(zip(values, chosen, strict=True))}, case.pass_name)
        for block in blocks:
            its_block = block or family.sparse_block(case.problem, case.pass_name, config)
            yield Candidate(config=config, sparse_block=its_block)
