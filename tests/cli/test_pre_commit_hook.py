"""The hook that other repositories use: valid for pre-commit, picks profiles, and runs as written."""

import re
import shlex
from pathlib import Path

import pytest
from cli_profiles import GOOD, S4
from pre_commit.clientlib import load_manifest

MANIFEST = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"


@pytest.fixture
def hook():
    return load_manifest(MANIFEST)[0]


def test_the_gate_hook_checks_everything_and_measures_nothing(attnctl, write):
    gate = load_manifest(MANIFEST)[1]
    assert (gate["id"], gate["pass_filenames"]) == ("attnctl-gate", False)
    write("profiles/a.yaml", S4)
    done = attnctl(*shlex.split(gate["entry"])[1:], *gate["args"])
    assert done.returncode == 1
    assert "profiles/a.yaml:6:12: error PAL-B003 " in done.stdout


def test_the_hook_is_installed_with_the_package(hook):
    assert (hook["id"], hook["language"], hook["types"]) == ("attnctl-validate", "python", ["yaml"])


@pytest.mark.parametrize(
    ("path", "chosen"),
    [
        ("profiles/ranker.yaml", True),
        ("kernels/profiles/deep/window.yml", True),
        ("profiles/tuned/nvidia_h200/ranker.yaml", False),
        ("my_profiles/a.yaml", False),
        (".github/workflows/ci.yaml", False),
    ],
)
def test_the_hook_picks_handwritten_profiles(hook, path, chosen):
    # As pre-commit does: search, not match.
    assert (bool(re.search(hook["files"], path)) and not re.search(hook["exclude"], path)) is chosen


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (S4, 1)])
def test_the_entry_runs_with_file_names_behind_it(hook, attnctl, write, text, code):
    program, *args = shlex.split(hook["entry"])
    assert program == "attnctl"
    first, second = write("profiles/a.yaml", text), write("profiles/b.yaml", GOOD)
    done = attnctl(*args, *hook["args"], first, second)
    assert done.returncode == code
    assert done.stderr.startswith("2 files, 2 problems: ")
    assert ("profiles/a.yaml:6:12: error PAL-B003 " in done.stdout) is bool(code)
