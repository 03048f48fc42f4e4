"""Print the page of a rule: what it demands, why, and what to do.

The code is the one that `validate` prints, for example `attnctl explain PAL-B003`; --list prints all codes.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.errors import UsageError

if TYPE_CHECKING:
    from attnctl.rules.registry import AnyRule

WIDEST = 100  # longer lines are hard to read


def explain(
    code: Annotated[str | None, typer.Argument(metavar="CODE", show_default=False, help="The code of a rule.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="One line per rule.")] = False,
) -> None:
    from attnctl.report._terminal import columns, has_colour, paint  # noqa: PLC0415
    from attnctl.rules.registry import all_rules, find_rule  # noqa: PLC0415 - imports every family's rules

    colour = has_colour(sys.stdout)
    if list_all:
        rules = all_rules()
        width = max(map(len, rules), default=0)
        for each in sorted(rules):
            typer.echo(f"{each.ljust(width)}  {rules[each].severity:<7}  {title(rules[each])}")
        return
    if code is None:
        raise UsageError("explain needs the code of a rule", "attnctl explain --list prints all of them")
    rule = find_rule(code)
    typer.echo(paint(f"{rule.code} {rule.name}", "strong", colour=colour))
    typer.echo("\n".join(page(rule, min(columns(), WIDEST))))


def title(rule: AnyRule) -> str:
    """What is wrong, in one line: the first paragraph of the page."""
    return " ".join(rule.page.strip().partition("\n\n")[0].split())


def page(rule: AnyRule, width: int) -> Iterator[str]:
    """The docstring, its paragraphs filled, after the facts that the rule itself carries."""
    first, *rest = [" ".join(paragraph.split()) for paragraph in rule.page.strip().split("\n\n")]
    yield from textwrap.wrap(first, width)
    yield ""
    yield from (f"{name:<10}{value}" for name, value in facts(rule))
    for paragraph in rest:
        yield ""
        yield from textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
    if rule.upstream:
        yield ""
        yield "Upstream says:"
        yield from (f"  {message}" for message in rule.upstream)


def facts(rule: AnyRule) -> Iterator[tuple[str, str]]:
    """Where the rule applies; faults of form have no passes, arches or versions."""
    yield "severity", str(rule.severity)
    for name in ("passes", "arches", "versions"):
        values = getattr(rule, name, ())
        if values:
            yield name, ", ".join(values)
