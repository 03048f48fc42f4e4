"""Print the page of a rule, or find the rules behind an error message: what they demand, why, and what to do.

With a code, the one that `validate` prints, its page: `attnctl explain PAL-B003`; --list prints all codes.
With a message, what it is about: `attnctl explain --message "Need to specify backward blocks."`; with `-`, all that is
known in a traceback or a whole log from standard input: `attnctl explain - < train.log`.

Examples:
  attnctl explain FA4-S010

  attnctl explain --message "Need to specify backward blocks."

  attnctl explain - < train.log

Exit code 0: explained; 1: nothing in the text is known; 2: wrong usage or an unknown code.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, BinaryIO

import typer

from attnctl.cli import _complete
from attnctl.errors import ExitCode, UsageError

WIDEST = 100  # longer lines are hard to read
FORMATS = ("text", "json")
PIECE = 1 << 20
STDIN = "-"
NOT_FOUND = "paste the whole traceback; or run `attnctl validate PROFILE`: many faults make no kernel say anything"


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE|-",
            show_default=False,
            help="The code of a rule, or - for text from standard input.",
            autocompletion=_complete.rule_codes,
        ),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="An error message or traceback.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="One line per rule.")] = False,
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", metavar="NAME", help=f"One of: {', '.join(FORMATS)}.")
    ] = "text",
) -> ExitCode:
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", f"known: {', '.join(FORMATS)}")
    if (code is not None) + (message is not None) + list_all != 1:
        raise UsageError(
            "explain needs one thing to explain: CODE, --message TEXT or - (standard input)",
            "attnctl explain --list prints all codes",
        )
    as_json = format == "json"
    if list_all:
        return _list(as_json)
    if message is not None or code == STDIN:
        pieces = _stdin() if message is None else (message,)
        return _messages(pieces, as_json)
    return _page(str(code), as_json)


def _list(as_json: bool) -> ExitCode:
    from attnctl.rules.pages import as_dict, title  # noqa: PLC0415 - imports every family's rules
    from attnctl.rules.registry import aliases, all_rules  # noqa: PLC0415

    rules = [rule for _, rule in sorted(all_rules().items())]
    if as_json:
        typer.echo(json.dumps([as_dict(each) for each in rules], indent=2))
        return ExitCode.OK
    rows = {each.code: (each, title(each)) for each in rules}
    rows |= {alias: (each, f"{each.code}: {title(each)}") for alias, each in aliases().items()}
    width = max(map(len, rows), default=0)
    for code, (each, text) in sorted(rows.items()):
        typer.echo(f"{code.ljust(width)}  {each.severity:<7}  {text}")
    return ExitCode.OK


def _page(code: str, as_json: bool) -> ExitCode:
    from attnctl.report._terminal import columns, has_colour, paint  # noqa: PLC0415
    from attnctl.rules.pages import as_dict, page  # noqa: PLC0415
    from attnctl.rules.registry import find_rule  # noqa: PLC0415

    rule = find_rule(code)
    if as_json:
        typer.echo(json.dumps(as_dict(rule), indent=2))
        return ExitCode.OK
    asked = code.strip().upper()
    if asked in rule.aliases:
        typer.echo(f"{asked} is {rule.code}, which says it for all families.\n")
    typer.echo(paint(f"{rule.code} {rule.name}", "strong", colour=has_colour(sys.stdout)))
    typer.echo("\n".join(page(rule, min(columns(), WIDEST))))
    return ExitCode.OK


def _messages(pieces: Iterable[str], as_json: bool) -> ExitCode:
    from attnctl.report._messages import write_json, write_text  # noqa: PLC0415
    from attnctl.report._terminal import columns  # noqa: PLC0415
    from attnctl.rules.messages import find_messages  # noqa: PLC0415

    matches = find_messages(pieces)
    if as_json:
        write_json(matches, sys.stdout)
    else:
        write_text(matches, sys.stdout, width=min(columns(), WIDEST))
    if matches:
        return ExitCode.OK
    typer.echo("nothing in this text is a message that attnctl knows", err=True)
    typer.echo(f"hint: {NOT_FOUND}", err=True)
    return ExitCode.FINDINGS


def _stdin() -> Iterator[str]:
    """Standard input in pieces. What is not text is no reason to stop: logs hold anything."""
    stream: BinaryIO = sys.stdin.buffer
    first = stream.read(PIECE)
    # Redirecting in PowerShell writes UTF-16.
    utf16 = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if utf16 else "utf-8")(errors="replace")
    piece = first
    while piece:
        yield decoder.decode(piece)
        piece = stream.read(PIECE)
    yield decoder.decode(b"", final=True)
