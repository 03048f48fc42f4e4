"""Helpers of the tests of benchmarks and of tuned profiles, and a repository with one profile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

for folder in ("bench", "runtime"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder with git in it, as the working directory; a function commits all that is there."""
    folder = tmp_path / "repository"
    (folder / "profiles").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("ATTNCTL_STATE_DIR", str(tmp_path / "state"))
    for name, value in GIT.items():
        monkeypatch.setenv(name, value)

    def git(*args):
        return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()

    def commit():
        git("add", "-A")
        git("commit", "-qm", "change")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return commit
