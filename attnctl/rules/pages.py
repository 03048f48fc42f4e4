"""The page of a rule, for a terminal and as Markdown: one text, the rule's docstring."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from attnctl.rules.registry import AnyRule


def title(rule: AnyRule) -> str:
    """What is wrong, in one line: the first paragraph of the page."""
    return paragraphs(rule)[0]


def paragraphs(rule: AnyRule) -> list[str]:
    """The page, one line each: the title, then `What: ...`, `Why: ...`, `Fix: ...`."""
    return [" ".join(paragraph.split()) for paragraph in rule.page.strip().split("\n\n")]


def paragraph(rule: AnyRule, name: str) -> str:
    """The paragraph `name: ...` of the page, without its name; empty where there is none."""
    named = (each for each in paragraphs(rule) if each.startswith(f"{name}: "))
    return next(named, "").removeprefix(f"{name}: ")


def facts(rule: AnyRule) -> Iterator[tuple[str, str]]:
    """Where the rule applies; faults of form have no passes, arches or versions."""
    yield "severity", str(rule.severity)
    for name in ("passes", "arches", "versions", "aliases"):
        values = getattr(rule, name, ())
        if values:
            yield name, ", ".join(values)


def page(rule: AnyRule, width: int) -> Iterator[str]:
    """Lines for a terminal: the title, the facts that the rule itself carries, then the paragraphs, filled."""
    first, *rest = paragraphs(rule)
    yield from textwrap.wrap(first, width)
    yield ""
    yield from (f"{name:<10}{value}" for name, value in facts(rule))
    for each in rest:
        yield ""
        yield from textwrap.wrap(each, width, break_long_words=False, break_on_hyphens=False)
    if rule.upstream:
        yield ""
        yield "Upstream says:"
        yield from (f"  {message}" for message in rule.upstream)


def markdown(rule: AnyRule) -> str:
    """The page without its heading, for Markdown and SARIF viewers."""
    first, *rest = paragraphs(rule)
    parts = [first, "\n".join(f"- {name}: {value}" for name, value in facts(rule))]
    for each in rest:
        name, colon, text = each.partition(": ")
        parts.append(f"**{name}:** {text}" if colon and name.isalpha() else each)
    if rule.upstream:
        parts += ["Upstream says:", "\n".join(f"    {message}" for message in rule.upstream)]
    return "\n\n".join(parts)


def as_dict(rule: AnyRule) -> dict[str, object]:
    """The stable JSON form of a rule."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": str(rule.severity),
        "title": title(rule),
        "what": paragraph(rule, "What"),
        "why": paragraph(rule, "Why"),
        "fix": paragraph(rule, "Fix"),
        "passes": list(getattr(rule, "passes", ())),
        "arches": list(getattr(rule, "arches", ())),
        "versions": list(getattr(rule, "versions", ())),
        "upstream": list(rule.upstream),
        "aliases": list(rule.aliases),
    }
