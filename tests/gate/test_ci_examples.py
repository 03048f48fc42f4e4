"""The action and the examples of the documentation, as they are written, in a real repository."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tuned_profiles import store_tuned, tile

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = (ROOT / "docs" / "ci.md").read_text()
PROFILE = """\
schema: 1
family: blocks
problem: {batch_size: 1, seq_len: 256, num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def shell(repository, tmp_path):
    """Run a script as runners do, with attnctl on the path and the files that GitHub gives a step."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "attnctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m attnctl "$@"\n')
    program.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    Path("profiles/p.yaml").write_text(PROFILE)
    store_tuned(Path("profiles/p.yaml"), 256, tile(64, 64))
    repository()

    def execute(script, **variables):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, env=environ | variables, capture_output=True, text=True, check=False)

    return execute


def filled_in(text, context):
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context[match[1]], text)


def run_action(shell, **given):
    """Every step of the composite action in turn, until one fails."""
    inputs = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()} | given
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        context = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ROOT)}
        variables = {name: filled_in(value, context) for name, value in step.get("env", {}).items()}
        done = shell(step["run"], **variables)
        if done.returncode:
            break
    return done


def test_the_action_passes(shell, tmp_path):
    done = run_action(shell, strict="true", base="HEAD")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == "code=0\n"
    assert "✅ pass" in (tmp_path / "summary.md").read_text()
    assert ET.parse("attnctl-gate.xml").getroot().get("failures") == "0"


def test_the_action_fails_and_says_where(shell, tmp_path):
    Path("profiles/p.yaml").write_text(PROFILE + "config:\n  forward: {block_q: -1}\n")
    done = run_action(shell)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=profiles/p.yaml,line=6,")
    assert (tmp_path / "output").read_text() == "code=1\n"


def test_the_examples_of_the_action_use_inputs_that_it_has():
    jobs = yaml.safe_load(blocks("yaml")[0])["jobs"]
    used = [step["with"] for job in jobs.values() for step in job["steps"] if "attnctl" in step["uses"]]
    assert len(used) == 2
    assert set().union(*used) <= set(ACTION["inputs"])


def test_the_gitlab_job(shell):
    job = yaml.safe_load(blocks("yaml")[1])["profiles"]
    install, *rest = job["script"]
    assert install == "pip install attnctl"
    assert shell("\n".join(rest)).returncode == 0
    assert ET.parse(job["artifacts"]["reports"]["junit"]).getroot().tag == "testsuites"


def test_the_pre_commit_example_names_hooks_that_there_are():
    (repo,) = yaml.safe_load(blocks("yaml")[2])["repos"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {each["id"] for each in repo["hooks"]} == {each["id"] for each in hooks}


def test_the_commands_for_anywhere_else(shell):
    (commands,) = blocks("sh")
    done = shell(commands)
    assert done.returncode == 0, done.stderr
    assert Path("gate.md").read_text().startswith("## attnctl gate")
