"""Check a profile or one case: the same rules for ``validate`` and for the sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attnctl.profile.load import Loaded, load
from attnctl.profile.model import Profile
from attnctl.profile.problems import cases_of, drafts_of, problems
from attnctl.rules.finding import Finding
from attnctl.rules.registry import general_rules, target_rules
from attnctl.rules.wording import fix_sentence
from attnctl_kernels.contract import Case, PassName, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Severity, Violation, check

Broken = tuple[Rule, Violation]


@dataclass(frozen=True, slots=True)
class Report:
    """What checking one profile found."""

    path: Path
    profile: Profile | None
    findings: tuple[Finding, ...]
    problem_count: int = 0
    case_count: int = 0

    @property
    def errors(self) -> int:
        return sum(each.severity is Severity.ERROR for each in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def check_case(case: Case) -> list[Broken]:
    """Every rule that ``case`` breaks, general and the family's.

    A general error is left out where the family has an error at the same field: it says the same, with the kernel's own
    numbers.
    """
    of_family = list(check(case, get_family(case.family).rules()))
    named = {violation.field for rule, violation in of_family if rule.severity is Severity.ERROR}
    general = [
        (rule, violation)
        for rule, violation in check(case, general_rules())
        if rule.severity is not Severity.ERROR or violation.field not in named
    ]
    return general + of_family


def check_profile(path: Path, *, seq_lens: Sequence[int] = (), arch: str | None = None) -> Report:
    """Load ``path`` and check every problem and pass; ``seq_lens`` and ``arch`` replace what the file says.

    Raises:
        UsageError: there is no such file, or it may not be read.
    """
    return check_loaded(load(path, seq_lens=seq_lens), arch=arch)


def check_loaded(loaded: Loaded, *, arch: str | None = None) -> Report:
    """Check a profile that is loaded already."""
    profile = loaded.profile
    if profile is None:
        return Report(loaded.path, None, loaded.findings)
    if arch is not None:
        profile = profile.model_copy(update={"arch": arch})
    found = _Merged(loaded)
    count = 0
    concrete = problems(profile, loaded.seq_lens)
    for index, problem in enumerate(concrete):
        for case, broken in _check_problem(profile, problem):
            count += 1
            for rule, violation in broken:
                found.add(index, case, rule, violation)
    return Report(loaded.path, profile, found.findings(concrete), len(concrete), count)


def _check_problem(profile: Profile, problem: Problem) -> Iterator[tuple[Case, list[Broken]]]:
    """The family is asked for its defaults only about a target that it knows."""
    drafts = [(case, list(check(case, target_rules()))) for case in drafts_of(profile, problem)]
    if any(broken for _, broken in drafts):
        yield from drafts
    else:
        for case in cases_of(profile, problem):
            yield case, check_case(case)


class _Merged:
    """Findings of all problems and passes; equal ones are one finding that names its lengths."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.found: dict[tuple[object, ...], tuple[Finding, dict[int, None], dict[str, None]]] = {}

    def add(self, index: int, case: Case, rule: Rule, violation: Violation) -> None:
        finding = self._finding(index, case.pass_name, rule, violation)
        # Not the finding itself: the value of a fix may be a list, which has no hash.
        key = (finding.code, finding.field, finding.line, finding.column, finding.message, finding.fix)
        _, indices, passes = self.found.setdefault(key, (finding, {}, {}))
        indices[index] = None
        passes[case.pass_name] = None

    def findings(self, concrete: Sequence[Problem]) -> tuple[Finding, ...]:
        merged = [
            _about(finding, [concrete[index] for index in indices], tuple(passes), len(concrete))
            for finding, indices, passes in self.found.values()
        ]
        return tuple(sorted(merged, key=lambda each: (each.line, each.column, each.code)))

    def _finding(self, index: int, pass_name: PassName, rule: Rule, violation: Violation) -> Finding:
        field, line, column = self.loaded.locate(violation.field, index, pass_name)

        def name(logical: str) -> str:
            return self.loaded.locate(logical, index, pass_name)[0]

        return Finding(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            path=str(self.loaded.path),
            line=line,
            column=column,
            field=field,
            message=violation.message,
            why=rule.why,
            fix=fix_sentence(violation, name),
            fixes=tuple(replace(each, field=name(each.field)) for each in violation.fixes),
        )


def _about(finding: Finding, affected: Sequence[Problem], passes: Sequence[str], total: int) -> Finding:
    """Say which problems and pass a finding is about, where it is not about all of them."""
    pass_name = passes[0] if len(passes) == 1 else ""
    if total == 1 or len(affected) == 1:
        return replace(finding, pass_name=pass_name, problem=affected[0].slug if total > 1 else "")
    lengths = () if len(affected) == total else tuple(_lengths(affected))
    message = f"{finding.message} (at {', '.join(lengths)})" if lengths else finding.message
    return replace(finding, pass_name=pass_name, message=message, lengths=lengths)


def _lengths(affected: Iterable[Problem]) -> Iterator[str]:
    for each in affected:
        yield str(each.seqlen_q) if each.seqlen_q == each.seqlen_k else f"{each.seqlen_q}x{each.seqlen_k}"
