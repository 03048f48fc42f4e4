"""The command line: finds the commands, and is the one place that turns an error into a message and an exit code.

A command is one file beside this one: ``attnctl/cli/NAME.py`` with a function ``NAME``, whose parameters are the
options and whose return value is the exit code (``None``: 0). The docstring of the file is the command's help; its
first line is shown by ``attnctl --help``, which reads it from the source and imports no command. Files whose names
start with an underscore, and the two in ``SHARED``, are not commands.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Never

import typer
from typer.core import TyperCommand, TyperGroup

import attnctl.cli
from attnctl._version import __version__
from attnctl.cli._say import Verbosity, choose, verbosity
from attnctl.errors import AttnctlError, ExitCode, UsageError

COMPLETE_VARIABLE = "_ATTNCTL_COMPLETE"
SHARED = ("app", "options")
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
OUTPUT_CLOSED = 141  # 128 + SIGPIPE, likewise
BUG = 70  # EX_SOFTWARE: never to be taken for a finding

HELP = "Validate, tune and benchmark block-sparse attention kernels."
EPILOG = "Exit codes: 0 fine, 1 findings or regression, 2 wrong usage, 3 inconclusive, 4 unavailable."


class LazyCommand(TyperCommand):
    """Stands for a command in help, suggestions and completion; its module is imported when it is chosen."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(str(self.name)).make_context(info_name, args, parent=parent, **extra)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole first sentence: a list of commands may wrap, but half a sentence helps nobody."""
        return " ".join((self.help or "").partition("\n\n")[0].split())


class Commands(TyperGroup):
    """Exceptions that click would give a code of its own are mapped before it sees them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(OUTPUT_CLOSED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def command_files() -> Iterator[Path]:
    """The files that hold commands, by name."""
    for folder in attnctl.cli.__path__:
        yield from (path for path in sorted(Path(folder).glob("[a-z]*.py")) if path.stem not in SHARED)


def docstring(path: Path) -> str:
    """The docstring of a file, without importing or compiling it."""
    text = path.read_text(encoding="utf-8").removeprefix('"""')
    return text.partition('"""')[0].strip()


def as_written(text: str) -> str:
    """``text`` for click, which joins and wraps the lines of a paragraph unless it begins with a backspace.

    An example that is wrapped cannot be pasted.
    """
    before, heading, examples = text.partition("Examples:\n")
    return before + heading.replace("Examples", "\b\nExamples") + examples.replace("\n\n  ", "\n\n\b\n  ")


def load(name: str) -> Any:
    """Import ``attnctl.cli.NAME`` and make its function ``NAME`` a command."""
    module = importlib.import_module(f"attnctl.cli.{name}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, help=as_written(module.__doc__ or ""))(getattr(module, name))
    return typer.main.get_command(alone)


def print_version(wanted: bool) -> None:
    """With the packages that kernels come from: what a report of a fault needs."""
    if wanted:
        from attnctl.packages import kernel_versions  # noqa: PLC0415 - reads package metadata

        here, absent = kernel_versions()
        lines = [f"attnctl {__version__}", *(f"{name} {version}" for name, version in here.items())]
        typer.echo("\n".join([*lines, f"not installed: {', '.join(absent)}"] if absent else lines))
        raise typer.Exit


def commands() -> Commands:
    """All commands as one click group."""
    app = typer.Typer(
        cls=Commands,
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def attnctl(
        version: bool = typer.Option(  # noqa: ARG001 - its callback has printed
            False, "--version", callback=print_version, is_eager=True, help="Show versions and exit."
        ),
        quiet: bool = typer.Option(False, "--quiet", "-q", help="Say nothing but results and errors."),
        verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more; show tracebacks of bugs."),
    ) -> None:
        if quiet and verbose:
            raise UsageError("--quiet and --verbose say the opposite", "leave one out")
        choose(Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL)

    if COMPLETE_VARIABLE in os.environ:
        # Only a shell that completes needs it.
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415

        completion_init()
    group: Commands = typer.main.get_group(app)  # type: ignore[assignment]
    for path in command_files():
        group.add_command(LazyCommand(name=path.stem, help=docstring(path), rich_markup_mode=None))
    return group


def fail(message: str, hint: str = "", args: Sequence[str] = ()) -> None:
    """Say on stderr what went wrong, and what to do next; beside the job too, if the command line asks for that."""
    with contextlib.suppress(OSError):  # nobody reads it; the exit code stands
        typer.echo(f"error: {message}", err=True)
        if hint:
            typer.echo(f"hint: {hint}", err=True)
    annotate(message, args)


def annotate(message: str, args: Sequence[str]) -> None:
    """With ``--format github``: a log that has to be opened first is read last."""
    if "--format=github" in args or ("--format", "github") in pairwise(args):
        from attnctl.report.github import as_data  # noqa: PLC0415 - not paid for by commands that succeed

        with contextlib.suppress(OSError):
            typer.echo(f"::error title=attnctl::{as_data(message)}")


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = sys.argv[1:] if args is None else args
    # Looking for plugins in all installed packages takes pydantic longer than a validation takes us.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        code = commands().main(args, prog_name="attnctl", standalone_mode=False)
        sys.stdout.flush()
    except AttnctlError as error:
        fail(error.message, error.hint, words)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}", args=words)
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 - the last resort: a crash must not look like a finding
        return unexpected(error, words)
    return code if isinstance(code, int) else ExitCode.OK


def unexpected(error: Exception, args: Sequence[str]) -> int:
    """Usage errors of click know how to show themselves; anything else should not have happened."""
    show = getattr(error, "show", None)
    if show is not None:
        show()
        annotate(getattr(error, "format_message")(), args)  # noqa: B009 - of click, which is not imported here
        return int(getattr(error, "exit_code", ExitCode.USAGE))
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if os.environ.get("ATTNCTL_DEBUG") or verbosity() is Verbosity.VERBOSE:
        traceback.print_exception(error)
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    fail(f"this is a bug in attnctl {__version__}: {summary}", "attnctl --verbose shows the traceback", args)
    return BUG


def _open_closed_streams() -> None:
    """Streams that the caller has closed lead nowhere; a file opened later must not get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def main() -> Never:
    """The ``attnctl`` executable."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may hold what the terminal cannot show
    code = run()
    try:
        sys.stdout.flush()
    except (
        OSError
    ):  # it is closed or full: the interpreter would flush it once more on exit, complain, and exit with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
