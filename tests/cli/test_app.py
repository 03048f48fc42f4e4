"""The frame around the commands: discovery, help, and what errors become."""

import re
import signal
import subprocess
import sys

import pytest

import attnctl.cli
from attnctl._version import __version__
from attnctl.cli.app import command_files, docstring, load, run
from attnctl.errors import AttnctlError, Inconclusive, MissingExtra, NoConfigWorks, UsageError

COMMANDS = [path.stem for path in command_files()]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Add a command `odd` by adding one file."""
    monkeypatch.setattr(attnctl.cli, "__path__", [*attnctl.cli.__path__, str(tmp_path)])

    def add(body):
        text = f'"""Do something odd."""\nfrom attnctl.errors import *\n\n\ndef odd() -> int:\n    {body}\n'
        (tmp_path / "odd.py").write_text(text, encoding="utf-8")

    yield add
    sys.modules.pop("attnctl.cli.odd", None)
    vars(attnctl.cli).pop("odd", None)


def test_version(process):
    done = process("--version")
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, f"attnctl {__version__}", "")


def test_help_lists_every_command_with_its_sentence(attnctl):
    done = attnctl("--help", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for path in command_files():
        sentence = " ".join(docstring(path).partition("\n\n")[0].split())
        assert f"  {path.stem} " in done.stdout
        assert f"{path.stem} {sentence}" in words


def test_help_imports_no_command_and_nothing_heavy(process):
    report = (
        "import atexit, sys\n"
        "heavy = ('pydantic', 'rich', 'yaml', 'numpy', 'attnctl_kernels', 'attnctl.rules', 'attnctl.cli.validate')\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules], file=sys.stderr))"
    )
    assert process("--help", before=report).stderr == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(attnctl, name):
    done = attnctl(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: attnctl {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_docstring_read_from_the_source_is_that_of_the_module(name):
    path = next(each for each in command_files() if each.stem == name)
    load(name)
    assert docstring(path) == sys.modules[f"attnctl.cli.{name}"].__doc__.strip()


def test_without_arguments_help_is_wrong_usage(process):
    done = process()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: attnctl ")


def test_unknown_command_names_the_nearest(attnctl):
    done = attnctl("valdate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'valdate'. Did you mean 'validate'?" in done.stderr


def test_unknown_option_is_wrong_usage(attnctl):
    done = attnctl("validate", "--seqlen", "3", "a.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such option" in done.stderr
    assert "--seq-len" in done.stderr


def test_a_command_is_one_file_and_its_return_value_is_the_exit_code(command, capsys):
    command("print('done'); return 3")
    assert run(["odd"]) == 3
    assert capsys.readouterr() == ("done\n", "")
    assert run(["--help"]) == 0
    assert re.search(r"odd +Do something odd\.", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("raised", "code", "err"),
    [
        (UsageError("a.yaml: no such file"), 2, "error: a.yaml: no such file\n"),
        (AttnctlError("nothing left", "widen the space"), 2, "error: nothing left\nhint: widen the space\n"),
        (NoConfigWorks("all failed"), 1, "error: all failed\n"),
        (Inconclusive("too noisy"), 3, "error: too noisy\n"),
        (MissingExtra("torch", "tune"), 4, "error: torch is not installed\nhint: pip install 'attnctl[tune]'\n"),
    ],
)
def test_errors_become_a_message_and_a_code(command, capsys, raised, code, err):
    arguments = ", ".join(
        map(repr, (raised.args[0], raised.hint) if type(raised) is not MissingExtra else ("torch", "tune"))
    )
    command(f"raise {type(raised).__name__}({arguments})")
    assert run(["odd"]) == code
    assert capsys.readouterr() == ("", err)


def test_a_system_error_names_the_file(command, capsys):
    command("open('/nowhere/at/all')")
    assert run(["odd"]) == 2
    assert capsys.readouterr() == ("", "error: /nowhere/at/all: No such file or directory\n")


def test_ctrl_c_is_130(command, capsys):
    command("raise KeyboardInterrupt")
    assert run(["odd"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_bug_is_one_line_and_never_looks_like_a_finding(command, capsys, monkeypatch):
    monkeypatch.delenv("ATTNCTL_DEBUG", raising=False)
    command("raise KeyError('tile\\nm')")
    assert run(["odd"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"error: this is a bug in attnctl {__version__}: KeyError: 'tile\\nm'",
        "hint: attnctl --verbose shows the traceback",
    ]


def test_debug_shows_the_traceback(command, capsys, monkeypatch):
    monkeypatch.setenv("ATTNCTL_DEBUG", "1")
    command("raise KeyError('tile_m')")
    assert run(["odd"]) == 70
    assert "Traceback (most recent call last):" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_take_nothing(environment, closed):
    """And no file that is opened later gets their number."""
    for arguments, code in (("explain --list", 0), ("explain G999", 2), ("explain -", 1), ("--help", 0)):
        command = f"{sys.executable} -m attnctl {arguments} {closed}"
        done = subprocess.run(
            command, shell=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "bug" in done.stderr, "Traceback" in done.stderr) == (code, False, False), arguments


def test_a_closed_pipe_is_quiet(environment):
    child = subprocess.Popen(
        [sys.executable, "-m", "attnctl", "explain", "--list"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait() == 141


INTERRUPTED_AT_TYPER = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def test_ctrl_c_while_the_command_line_is_imported_leaves_no_traceback(process):
    done = process("--version", before=INTERRUPTED_AT_TYPER)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_background_job_that_ignores_ctrl_c_goes_on(process):
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    done = process("--version", before=ignoring + INTERRUPTED_AT_TYPER)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "annotation"),
    [
        (("validate", "nope.yaml", "--format", "github"), "::error title=attnctl::nope.yaml: no such file or folder"),
        (("gate", "--format=github"), "::error title=attnctl::Missing argument 'PATH'."),
        (("bench", "--format", "github", "--bogus"), "::error title=attnctl::No such option: --bogus"),
        (("validate", "nope.yaml"), None),
    ],
)
def test_what_keeps_a_command_from_working_is_an_annotation_too(words, annotation, capsys):
    assert run(words) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ([annotation] if annotation else [])
    assert annotation is None or annotation.rpartition("::")[2] in printed.err
