"""Print the JSON Schema of profiles.

Editors complete and check profiles with it, for example through a first line of
`# yaml-language-server: $schema=attnctl.schema.json`.

Examples:
  attnctl schema > attnctl.schema.json
"""

from __future__ import annotations

import json

import typer


def schema() -> None:
    from attnctl.profile.schema import json_schema  # noqa: PLC0415 - pydantic is not paid for by --help

    typer.echo(json.dumps(json_schema(), indent=2))
