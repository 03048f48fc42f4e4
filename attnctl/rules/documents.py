"""The rules as Markdown for the docs: an index, and one file per kind of code.

``python -m attnctl.rules.documents docs/rules`` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from attnctl.files import write_atomic
from attnctl.rules.pages import markdown, title
from attnctl.rules.registry import AnyRule, aliases, all_rules, form_rules, general_rules
from attnctl_kernels.families import family_names, get_family

COMMAND = "python -m attnctl.rules.documents docs/rules"
INDEX = "index.md"
BAR = "\\|"  # in a table


def documents() -> dict[str, str]:
    """File name -> Markdown: an index, and one file per kind of code (`fa4.md` for `FA4-S007`)."""
    kinds: dict[str, list[AnyRule]] = {}
    for code, rule in sorted(all_rules().items()):
        kinds.setdefault(_kind(code), []).append(rule)
    files = {_name(kind): _file(kind, rules) for kind, rules in kinds.items()}
    return {INDEX: _index(kinds)} | files


def _kind(code: str) -> str:
    return code.partition("-")[0] if "-" in code else code.rstrip("0123456789")


def _heading(rules: Iterable[AnyRule]) -> str:
    """Whom the rules are about."""
    codes = {each.code for each in rules}
    if codes & {each.code for each in form_rules()}:
        return "Files and fields"
    if codes & {each.code for each in general_rules()}:
        return "All families"
    families = map(get_family, family_names())
    return ", ".join(f"{each.title} (`{each.name}`)" for each in families if codes & {own.code for own in each.rules()})


def _file(kind: str, rules: Iterable[AnyRule]) -> str:
    parts = [f"# {_heading(rules)}", _note()]
    for rule in rules:
        parts += [f"## {rule.code} {rule.name}", markdown(rule)]
    for alias, rule in _aliases(kind):
        parts += [f"## {alias}", f"See {_link(rule.code, rule)}, which says it for all families."]
    return "\n\n".join(parts) + "\n"


def _aliases(kind: str) -> list[tuple[str, AnyRule]]:
    """Codes of this kind that general rules answer."""
    return sorted((alias, rule) for alias, rule in aliases().items() if _kind(alias) == kind)


def _index(kinds: dict[str, list[AnyRule]]) -> str:
    parts = ["# Rules", _note()]
    for kind, rules in kinds.items():
        rows = [f"| {_link(each.code, each)} | {_facts(each)}" for each in rules]
        rows += [f"| {alias}, which is {_link(each.code, each)} | {_facts(each)}" for alias, each in _aliases(kind)]
        parts += [f"## {_heading(rules)}", "\n".join(["| Code | Severity | What is wrong |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _link(text: str, rule: AnyRule) -> str:
    return f"[{text}]({_name(_kind(rule.code))}#{rule.code.lower()}-{rule.name})"


def _facts(rule: AnyRule) -> str:
    return f"{rule.severity} | {title(rule).replace('|', BAR)} |"


def _name(kind: str) -> str:
    return f"{kind.lower()}.md"


def _note() -> str:
    return f"<!-- Written by `{COMMAND}` from the rules themselves. -->"


def main(folder: Path) -> None:
    """Write all documents into ``folder``, and remove those of rules that are gone."""
    wanted = documents()
    for old in folder.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        write_atomic(folder / name, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
