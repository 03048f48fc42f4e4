"""Fixes that are tried out before they are offered: a value that mends one rule may break another.

A fix is put into the profile, and the rules are asked again about that problem. One that breaks a rule which held
before is followed: where that rule offers another value for the same field, it is tried in turn (tile_n 272 -> 256, for
which there is no shared memory -> 192). What then still breaks something is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from attnctl.profile.mask_source import mask_of
from attnctl.profile.model import MaskSection, Profile, SparseBlocks
from attnctl.profile.places import parse_field
from attnctl.rules.general.masks import unused_facts
from attnctl.rules.registry import target_rules
from attnctl.rules.wording import fix_sentence
from attnctl_kernels.contract import Case, Mask, Problem, join_words
from attnctl_kernels.rule import Fix, Rule, Severity, Violation, length_price

Broken: TypeAlias = "tuple[Case, list[tuple[Rule, Violation]]]"
Check: TypeAlias = Callable[[Profile, Problem], Iterable[Broken]]
Locate: TypeAlias = Callable[[str], str]  # a field in the words of rules -> as the file has it

ARCH_OPTION = "--arch"  # where the arch is not the file's
MOST_TRIED = 500  # per profile: what thousands of problems offer is not read by anyone
MOST_CODES = 3  # that a sentence names
FURTHER = 3  # values that are followed from one fix
_LENGTHS = ("seq_len", "seqlen_q", "seqlen_k")


class Remedies:
    """Tries the fixes of one profile."""

    def __init__(self, profile: Profile, check: Check) -> None:
        self.profile = profile
        self.check = check
        self.tried = 0
        self.known: dict[Problem, frozenset[str]] = {}

    def working(
        self, problem: Problem, rule: Rule, violation: Violation, locate: Locate
    ) -> tuple[tuple[Fix, ...], str]:
        """The fixes of ``violation`` that work, with fields as the file has them, and its advice."""
        found: dict[tuple[str, str], Fix] = {}
        codes: dict[str, None] = {}
        for fix in violation.fixes:
            path = locate(fix.field)
            if self.tried >= MOST_TRIED:
                found[path, str(fix.value)] = Fix(path, fix.value, fix.price)
                continue
            located = Fix(path, fix.value, fix.price)
            for each in self._follow(problem, located, (rule.code, locate(violation.field)), locate, codes):
                found.setdefault((path, str(each.value)), each)
        advice = violation.advice
        if violation.fixes and not found:
            first = violation.fixes[0]
            sentence = fix_sentence((Fix(locate(first.field), first.value, first.price),))
            also = f"{sentence}, and what {_listed(list(codes))} then asks for"
            advice = f"{also}; or {advice}" if advice else also
        return tuple(found.values()), advice

    def _follow(
        self, problem: Problem, fix: Fix, mends: tuple[str, str], locate: Locate, codes: dict[str, None]
    ) -> Iterator[Fix]:
        """``fix``, or what the rules that it breaks offer for the same field; ``codes`` gets those rules.

        ``mends`` is the code and the field, as the file has it, of what must be gone (`seq_len`: queries and keys).
        """
        before = self._errors(problem)
        of_target = any(rule.code == mends[0] for rule in target_rules())  # other rules were not asked before
        waiting = [fix]
        seen = {str(fix.value)}
        while waiting and len(seen) <= FURTHER + 1:
            each = waiting.pop(0)
            if not _is_size(each):
                continue
            mended = with_fix(self.profile, problem, each)
            if mended is None:  # no one value of the profile: arrays, or a row of a block list
                yield each
                return
            self.tried += 1
            new = [
                (rule, violation)
                for _, broken in self.check(*mended)
                for rule, violation in broken
                if (rule.code == mends[0] and locate(violation.field) == mends[1])
                or (rule.severity is Severity.ERROR and rule.code not in before and not of_target)
            ]
            if not new:
                yield _with_price(each, self.profile.mask)
                return
            codes.update(dict.fromkeys(rule.code for rule, _ in new))
            for _, violation in new:
                for other in violation.fixes:
                    if locate(other.field) == fix.field and str(other.value) not in seen:
                        seen.add(str(other.value))
                        waiting.append(Fix(fix.field, other.value, _price(problem, fix.field, other)))

    def _errors(self, problem: Problem) -> frozenset[str]:
        if problem not in self.known:
            if len(self.known) > 64:  # problems come in order
                self.known.clear()
            self.known[problem] = frozenset(
                rule.code
                for _, broken in self.check(self.profile, problem)
                for rule, _ in broken
                if rule.severity is Severity.ERROR
            )
        return self.known[problem]


def _is_size(fix: Fix) -> bool:
    """The format takes no lengths and blocks below 1; a rule that derives one from a broken tile may offer it."""
    sizes = fix.value if isinstance(fix.value, tuple) else (fix.value,)
    sized = fix.field.startswith(("problem.", "sparse_block"))
    return not (sized and any(isinstance(each, int | float) and each <= 0 for each in sizes))


def _price(problem: Problem, path: str, fix: Fix) -> str:
    """What ``fix`` costs the problem as it is, not the one that a first value had made of it."""
    name = parse_field(path)[1:2]
    if name and name[0] in _LENGTHS and isinstance(fix.value, int):
        return length_price(problem.seqlen_k if name[0] == "seqlen_k" else problem.seqlen_q, fix.value)
    return fix.price


def _listed(codes: list[str]) -> str:
    shown = codes[:MOST_CODES]
    return join_words([*shown, f"{len(codes) - len(shown)} more rules"] if codes[MOST_CODES:] else shown, "and")


def _with_price(fix: Fix, mask: Mask) -> Fix:
    """Another pattern has no use for the facts of the one that goes."""
    unused = unused_facts(mask, str(fix.value)) if fix.field == "mask.pattern" else []
    if not unused:
        return fix
    without = f"without {join_words(unused, 'and')}"
    return Fix(fix.field, fix.value, f"{fix.price}, {without}" if fix.price else without)


def with_fix(profile: Profile, problem: Problem, fix: Fix) -> tuple[Profile, Problem] | None:
    """Both after ``fix``, whose field is as the file has it; None where that is not one value of them."""
    head, *rest = parse_field(fix.field)
    update: dict[str, Any] | None = None
    if head == ARCH_OPTION:
        head = "arch"
    if head == "problem" and rest:
        problem = _changed_problem(profile, problem, str(rest[0]), fix.value)
        update = {}
    elif head in ("arch", "version", "passes"):
        update = {str(head): fix.value}
    elif head == "mask" and len(rest) == 1:
        mask = _changed_mask(profile.mask, str(rest[0]), fix.value)
        problem = problem.model_copy(update={"mask": mask_of(mask, problem.seqlen_k)})
        update = {"mask": mask}
    elif head == "sparse_block":
        update = {"sparse_block": _changed_blocks(profile.sparse_block, rest, fix.value)}
    elif head == "config":
        update = {"config": _changed_config(profile.config, rest, fix.value)}
    elif head == "layout" and len(rest) == 1 and profile.layout is not None and profile.layout.path is None:
        update = {"layout": profile.layout.model_copy(update={str(rest[0]): fix.value})}
    return None if update is None else (profile.model_copy(update=update), problem)


def _changed_mask(mask: MaskSection, name: str, value: Any) -> MaskSection:
    update: dict[str, Any] = {name: value}
    if name == "pattern":
        update |= dict.fromkeys(unused_facts(mask, value))
    return mask.model_copy(update=update)


def _changed_problem(profile: Profile, problem: Problem, name: str, value: Any) -> Problem:
    """What a field is that the profile leaves out follows the one that it is taken from."""
    section, update = profile.problem, {name: value}
    if name in _LENGTHS:
        both = name == "seq_len" or (name == "seqlen_q" and section.seqlen_k is None)
        update = {"seqlen_q": value, "seqlen_k": value} if both else {name: value}
    elif name == "num_heads_q" and section.num_heads_kv is None:
        update["num_heads_kv"] = value
    elif name == "head_dim" and section.head_dim_v is None:
        update["head_dim_v"] = value
    return problem.model_copy(update=update)


def _changed_blocks(blocks: SparseBlocks, rest: list[str | int], value: Any) -> SparseBlocks:
    """A pair for all passes, for one, or one side of either."""
    names = [str(rest[0])] if rest and isinstance(rest[0], str) else list(SparseBlocks.model_fields)
    side = rest[-1] if rest and isinstance(rest[-1], int) else None
    changed: dict[str, Any] = {}
    for name in names:
        pair = list(getattr(blocks, name) or ())
        if side is None:
            changed[name] = None if value is None else tuple(value)
        elif pair:
            pair[side] = value
            changed[name] = tuple(pair)
    return blocks.model_copy(update=changed)


def _changed_config(values: dict[str, Any], path: list[str | int], value: Any) -> dict[str, Any]:
    name, *rest = map(str, path)
    return {**values, name: _changed_config(values.get(name, {}), list(rest), value) if rest else value}
