"""Check a profile or one case: the same rules for ``validate`` and for the sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from attnctl.profile.edits import edit_for
from attnctl.profile.load import Loaded, load
from attnctl.profile.model import Profile
from attnctl.profile.problems import cases_of, drafts_of, problems
from attnctl.rules.finding import Finding
from attnctl.rules.registry import general_rules, target_rules
from attnctl.rules.remedies import ARCH_OPTION, Check, Remedies
from attnctl.rules.shared import SharedAnswers
from attnctl.rules.wording import fix_sentence
from attnctl_kernels.contract import Case, Family, PassName, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Severity, Violation, check

if TYPE_CHECKING:
    from attnctl.compile.run import Compilation

Broken = tuple[Rule, Violation]
MOST_LENGTHS = 16  # that a message lists


@dataclass(frozen=True, slots=True)
class Report:
    """What checking one profile found."""

    path: Path
    profile: Profile | None
    findings: tuple[Finding, ...]
    problem_count: int = 0
    case_count: int = 0
    by_length: Mapping[int, tuple[Finding, ...]] | None = None  # where asked for: every length, and what it breaks
    compilation: Compilation | None = None  # likewise: what became of the kernels

    @property
    def errors(self) -> int:
        return sum(each.severity is Severity.ERROR for each in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def check_case(case: Case, answers: SharedAnswers | None = None) -> list[Broken]:
    """Every rule that ``case`` breaks, general and the family's.

    A general error is left out where the family has an error at the same field: it says the same, with the kernel's own
    numbers. ``answers`` remembers those of other lengths of the same profile.
    """
    violations = answers.violations if answers else _violations
    target = (case.pass_name, case.arch, case.version)
    of_family = list(violations(case, _rules_about(get_family(case.family), *target)))
    named = {violation.field for rule, violation in of_family if rule.severity is Severity.ERROR}
    general = [
        (rule, violation)
        for rule, violation in violations(case, _rules_about(None, *target))
        if rule.severity is not Severity.ERROR or violation.field not in named
    ]
    return general + of_family


@lru_cache(maxsize=64)
def _rules_about(family: Family | None, pass_name: PassName, arch: str | None, version: str) -> tuple[Rule, ...]:
    """The family's rules, or the general ones, that one target has: the same for thousands of problems."""
    rules = general_rules() if family is None else family.rules()
    return tuple(each for each in rules if each.is_about(pass_name, arch, version))


def _violations(case: Case, rules: Iterable[Rule]) -> Iterator[Broken]:
    for rule in rules:
        for violation in rule.check(case):
            yield rule, violation


def check_profile(
    path: Path, *, seq_lens: Sequence[int] = (), arch: str | None = None, by_length: bool = False
) -> Report:
    """Load ``path`` and check every problem and pass; ``seq_lens`` and ``arch`` replace what the file says.

    ``by_length`` sorts the findings by the length that they are about, too.

    Raises:
        UsageError: there is no such file, or it may not be read.
    """
    return check_loaded(load(path, seq_lens=seq_lens), arch=arch, by_length=by_length)


def check_loaded(loaded: Loaded, *, arch: str | None = None, by_length: bool = False) -> Report:
    """Check a profile that is loaded already."""
    profile = loaded.profile
    if profile is None:
        return Report(loaded.path, None, loaded.findings)
    if arch is not None:
        profile = profile.model_copy(update={"arch": arch})
    found = _Merged(loaded, Remedies(profile, checked_cases), arch_given=arch is not None)
    count = 0
    ask: Check = checked_cases
    concrete = problems(profile, loaded.seq_lens)
    for index, problem in enumerate(concrete):
        for case, broken in ask(profile, problem):
            count += 1
            for rule, violation in broken:
                found.add(index, case, rule, violation)
        if index == 0 and found.codes.isdisjoint(each.code for each in target_rules()):
            ask = partial(_checked_configs, answers=SharedAnswers())  # all problems have one target
    merged = found.findings(concrete)
    lengths = _by_length(merged, concrete) if by_length else None
    return Report(loaded.path, profile, tuple(each for each, _ in merged), len(concrete), count, lengths)


def _by_length(
    merged: Sequence[tuple[Finding, tuple[int, ...]]], concrete: Sequence[Problem]
) -> dict[int, tuple[Finding, ...]]:
    """Findings of each query length."""
    found: dict[int, list[Finding]] = {problem.seqlen_q: [] for problem in concrete}
    for finding, indices in merged:
        for length in dict.fromkeys(concrete[index].seqlen_q for index in indices):
            found[length].append(finding)
    return {length: tuple(findings) for length, findings in found.items()}


def checked_cases(profile: Profile, problem: Problem) -> Iterator[tuple[Case, list[Broken]]]:
    """The family is asked for its defaults only about a target that it knows."""
    drafts = [(case, list(check(case, target_rules()))) for case in drafts_of(profile, problem)]
    if any(broken for _, broken in drafts):
        yield from drafts
    else:
        yield from _checked_configs(profile, problem)


def _checked_configs(
    profile: Profile, problem: Problem, answers: SharedAnswers | None = None
) -> Iterator[tuple[Case, list[Broken]]]:
    for case in cases_of(profile, problem):
        yield case, check_case(case, answers)


@dataclass(slots=True)
class _Group:
    """Equal violations of one rule at one place."""

    rule: Rule
    violation: Violation
    index: int  # of the problem and pass that had it first
    pass_name: PassName
    indices: dict[int, None]
    passes: dict[PassName, None]


class _Merged:
    """Violations of all problems and passes; equal ones become one finding that names its lengths."""

    def __init__(self, loaded: Loaded, remedies: Remedies, *, arch_given: bool) -> None:
        self.loaded = loaded
        self.arch_given = arch_given  # on the command line, so that the file's line is not at fault
        self.remedies = remedies
        self.groups: dict[tuple[object, ...], _Group] = {}
        self.places: dict[tuple[object, ...], tuple[str, int, int]] = {}

    def add(self, index: int, case: Case, rule: Rule, violation: Violation) -> None:
        place = self.locate(violation.field, index, case.pass_name)
        # As text: the value of a fix may be a list, which has no hash.
        fixes = tuple([(fix.field, str(fix.value)) for fix in violation.fixes])
        key = (rule.code, place, violation.message, violation.advice, fixes)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _Group(rule, violation, index, case.pass_name, {}, {})
        group.indices[index] = None
        group.passes[case.pass_name] = None

    @property
    def codes(self) -> set[str]:
        return {group.rule.code for group in self.groups.values()}

    def locate(self, field: str, index: int, pass_name: PassName) -> tuple[str, int, int]:
        """Only lengths of the file have a place per problem, so thousands of problems share most places."""
        if field == "arch" and self.arch_given:
            return ARCH_OPTION, 0, 0
        own = index if field.startswith("problem.") and not self.loaded.seq_lens else None
        key = (field, own, pass_name)
        if key not in self.places:
            self.places[key] = self.loaded.locate(field, index, pass_name)
        return self.places[key]

    def findings(self, concrete: Sequence[Problem]) -> list[tuple[Finding, tuple[int, ...]]]:
        """In the order of the file, each with the problems that it is about."""
        merged = []
        for group in self.groups.values():
            affected = [concrete[index] for index in group.indices]
            finding = self._finding(group, affected, concrete[group.index], len(concrete))
            merged.append((finding, tuple(group.indices)))
        return sorted(merged, key=lambda each: (each[0].line, each[0].column, each[0].code))

    def _finding(self, group: _Group, affected: Sequence[Problem], first: Problem, total: int) -> Finding:
        rule, violation = group.rule, group.violation
        passes = tuple(group.passes)
        one = total == 1 or len(affected) == 1
        lengths = () if one or len(affected) == total else tuple(_lengths(affected))
        field, line, column = self.locate(violation.field, group.index, group.pass_name)
        fixes, advice = self.remedies.working(
            first, rule, violation, lambda name: self.locate(name, group.index, group.pass_name)[0]
        )
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            path=str(self.loaded.path),
            line=line,
            column=column,
            field=field,
            message=f"{violation.message} (at {_listed(lengths, total)})" if lengths else violation.message,
            why=rule.why,
            fix=fix_sentence(fixes, advice),
            fixes=fixes,
            edits=tuple(edit_for(self.loaded.document, each.field, each.value) for each in fixes),
            problem=affected[0].slug if one and total > 1 else "",
            lengths=lengths,
            pass_name=passes[0] if len(passes) == 1 else "",
        )


def _listed(lengths: Sequence[str], total: int) -> str:
    return ", ".join(lengths) if len(lengths) <= MOST_LENGTHS else f"{len(lengths)} of {total} problems"


def _lengths(affected: Iterable[Problem]) -> Iterator[str]:
    for each in affected:
        yield str(each.seqlen_q) if each.seqlen_q == each.seqlen_k else f"{each.seqlen_q}x{each.seqlen_k}"
