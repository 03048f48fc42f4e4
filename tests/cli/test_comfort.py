"""Completion, examples, versions, and terminals that can do little."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_profiles import GOOD, S4
from click.testing import CliRunner

from attnctl import packages
from attnctl.cli.app import command_files, docstring, load

ROOT = Path(__file__).parents[2]
PROGRAM = "from attnctl.__main__ import main; main()"
COMMANDS = {path.stem: path for path in command_files()}
EXAMPLES = [
    pytest.param(line.strip(), id=line.strip())
    for path in COMMANDS.values()
    for line in docstring(path).splitlines()
    if re.match(r"  attnctl ", line)
]


def completed(environment, tmp_path, *words):
    """What bash would offer for the last of ``words``."""
    variables = {"_ATTNCTL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment | variables, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["attnctl", "va"], {"validate"}),
        (["attnctl", "explain", "PAL-B00"], {"PAL-B001", "PAL-B003"}),
        (["attnctl", "validate", "p.yaml", "--format", "s"], {"sarif"}),
        (["attnctl", "bench", "p.yaml", "--format", "g"], {"github"}),
        (["attnctl", "bench", "p.yaml", "--against", ""], {"default", "incumbent", "fa4"}),
        (["attnctl", "init", "p.yaml", "--family", "f"], {"fa4", "flex"}),
        (["attnctl", "init", "p.yaml", "--mask", "s"], {"sliding_window"}),
        (["attnctl", "export", "p.yaml", "--to", "v"], {"vllm"}),
        (["attnctl", "which", "p.yaml", "--device-name", "nv"], {"nvidia_h200"}),
        (["attnctl", "tune", "p.yaml", "--bud"], {"--budget"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_completion(environment, tmp_path, write, words, offered):
    write("profiles/tuned/nvidia_h200/p.yaml", "")
    found = completed(environment, tmp_path, *words)
    assert offered <= set(found)
    assert all(each.startswith(words[-1]) for each in found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_this_program(attnctl, shell):
    done = attnctl("completion", shell)
    assert done.returncode == 0
    assert "_ATTNCTL_COMPLETE" in done.stdout


def test_bash_takes_the_completion_script(attnctl):
    script = attnctl("completion", "bash").stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples(name):
    assert "Examples:" in docstring(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples_that_can_be_pasted(name):
    """Wrapped into a paragraph, a command would be cut in two, and the first one stand behind its heading."""
    shown = CliRunner().invoke(load(name), ["--help"], terminal_width=50).output.splitlines()
    for line in docstring(COMMANDS[name]).splitlines():
        if line.startswith("  attnctl "):
            assert f"  {line}" in shown


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_parse(line):
    """Every option is one that the command has, with a value that it takes; redirections are the shell's."""
    program, name, *args = shlex.split(re.sub(r" [<>] \S+", "", line))
    assert program == "attnctl"
    load(name).make_context(name, args, resilient_parsing=False)


ANYWHERE = [
    line
    for line in [str(each.values[0]) for each in EXAMPLES]
    + re.findall(r"^attnctl export .*", (ROOT / "docs" / "export.md").read_text(), re.MULTILINE)
    if line.split()[1] in {"export", "which", "show", "explain", "schema", "doctor"} and " < " not in line
]


@pytest.mark.parametrize("line", ANYWHERE)
def test_examples_that_need_no_device_work_as_they_are_written(attnctl, tmp_path, monkeypatch, line):
    """In a copy of the profiles of this repository. An example named a length that its profile cannot have."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    done = attnctl(*shlex.split(re.sub(r" > \S+", "", line))[1:])
    assert done.returncode == 0, done.stderr
    if match := re.search(r" --out (\S+)", line):
        written = tmp_path / match[1]
        assert written.is_dir() == match[1].endswith("/")
        assert written.is_file() or [each for each in written.iterdir() if each.suffix == ".json"]


def test_versions(process, attnctl):
    done = process("--version")
    here, absent = packages.kernel_versions()
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"attnctl \d+\.\d+\.\d+\S*", lines[0])
    assert lines[1 : 1 + len(here)] == [f"{name} {version}" for name, version in here.items()]
    assert lines[1 + len(here) :] == ([f"not installed: {', '.join(absent)}"] if absent else [])


def test_damaged_metadata_is_no_version(tmp_path, monkeypatch):
    folder = tmp_path / "tokamax-1.0.dist-info"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.version_of("tokamax") is None
    (folder / "METADATA").write_text("Name: tokamax\n")
    assert packages.version_of("tokamax") is None
    (folder / "METADATA").write_text("Name: tokamax\nVersion: 1.2\n")
    assert packages.version_of("tokamax") == "1.2"


def test_quiet_says_results_and_errors_alone(attnctl, write):
    assert attnctl("-q", "validate", write("good.yaml", GOOD)).stderr == ""
    done = attnctl("--quiet", "validate", write("s4.yaml", S4))
    assert (done.returncode, done.stderr) == (1, "")
    assert "PAL-B003" in done.stdout
    assert attnctl("-q", "validate", "none.yaml").stderr.startswith("error: none.yaml")
    assert attnctl("validate", "good.yaml").stderr.startswith("1 file")


def test_quiet_and_verbose(attnctl):
    done = attnctl("-q", "-v", "doctor")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: --quiet and --verbose say the opposite")


@pytest.mark.parametrize("variables", [{"COLUMNS": "20"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LC_ALL": "C"}])
def test_poor_terminals(process, write, variables):
    name = write("good.yaml", GOOD)
    for args in (["--help"], ["gate", "--help"], ["which", name, "--device-name", "nvidia_h200"], ["gate", name]):
        done = process(*args, **variables)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr
