"""A case with another config in it, and whether the rules allow that."""

from __future__ import annotations

from dataclasses import replace

from attnctl.rules.check import check_case
from attnctl.rules.registry import general_rules
from attnctl_kernels.contract import Candidate, Case, SparseBlock
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Rule, Severity, Violation


def case_of(case: Case, candidate: Candidate) -> Case:
    """``case`` with ``candidate`` in place of the profile's own config."""
    return replace(
        case,
        config=candidate.config,
        sparse_block=candidate.sparse_block,
        given=frozenset(candidate.config) | {"sparse_block"},
        configs={**case.configs, case.pass_name: candidate.config},
        sparse_blocks={**case.sparse_blocks, case.pass_name: candidate.sparse_block},
    )


def errors(case: Case) -> list[tuple[Rule, Violation]]:
    """Why ``case`` must not run: what ``validate`` calls errors. Warnings do not stop a candidate."""
    return [(rule, violation) for rule, violation in check_case(case) if rule.severity is Severity.ERROR]


def error_rules(case: Case) -> list[Rule]:
    """The rules that can stop a candidate of ``case``: the family's, which know its numbers, then general ones."""
    rules = (*get_family(case.family).rules(), *general_rules())
    return [each for each in rules if each.severity is Severity.ERROR and each.applies(case)]


def default_candidate(case: Case, sparse_block: SparseBlock | None) -> Candidate:
    """What the kernel picks by itself, at the block that the profile fixes if it does."""
    family = get_family(case.family)
    config = family.default_config(case.problem, case.pass_name, case.arch, sparse_block)
    block = sparse_block or family.sparse_block(case.problem, case.pass_name, config)
    return Candidate(config=config, sparse_block=block)


def profile_candidate(case: Case) -> Candidate:
    """The profile's own config, completed by the kernel's default."""
    family = get_family(case.family)
    config = family.canonical(family.of_pass(case.config, case.pass_name), case.pass_name)
    return Candidate(config=config, sparse_block=case.sparse_block)
