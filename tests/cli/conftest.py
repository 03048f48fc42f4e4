"""The real command line, in a process of its own or in this one."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnctl.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment():
    """No settings of the machine that tests run on; attnctl can be imported, installed or not."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]), "COLUMNS": "80"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def process(tmp_path, environment):
    """Run `attnctl ARGS` as a process in an empty folder, after the code ``before``; keywords are its environment."""

    def run(*args, before="", seconds=120, **variables):
        program = f"{before}\nfrom attnctl.__main__ import main\nmain()"
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, args)],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            encoding="utf-8",
            timeout=seconds,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def attnctl(tmp_path, monkeypatch, capsys):
    """The same without a process of its own: quicker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        code = app.run([*map(str, args)])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def write(tmp_path):
    """Write a profile into the folder in which `attnctl` runs."""

    def to_file(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return to_file
