"""Print a script that completes commands, options, families, rule codes and formats in a shell.

Examples:
  attnctl completion bash > ~/.local/share/bash-completion/completions/attnctl

  attnctl completion zsh > ~/.zfunc/_attnctl

  attnctl completion fish > ~/.config/fish/completions/attnctl.fish
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from attnctl.cli.app import COMPLETE_VARIABLE


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> None:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # noqa: PLC0415

    typer.echo(get_completion_script(prog_name="attnctl", complete_var=COMPLETE_VARIABLE, shell=shell.value))
