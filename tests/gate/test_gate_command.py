"""Rules, tuned files and measurements as one check, with one exit code."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tuned_profiles import store_tuned, tile

from attnctl.cli.app import run
from attnctl.gpu.names import cpu_name

PROFILE = """\
schema: 1
family: blocks
problem: {batch_size: 1, seq_len: 256, num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 128, block_kv: 128}
gate: {max_regression: 50%}
"""
PATH = Path("profiles/p.yaml")


def gate(capsys, *args):
    capsys.readouterr()
    code = run(["gate", "profiles", *args])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def write(text=PROFILE):
    PATH.write_text(text)


def test_nothing_wrong_passes(repository, capsys):
    write()
    store_tuned(PATH, 256, tile(64, 64))
    code, out, err = gate(capsys, "--strict")
    assert code == 0
    assert out == (
        "profiles/p.yaml: pass (not measured: blocks needs no GPU: --measure always measures it on this CPU)\n"
    )
    assert err == "gate: pass\n"


def test_a_broken_rule_fails_at_its_line(repository, capsys):
    write(PROFILE.replace("block_q: 128", "block_q: -1"))
    code, out, _ = gate(capsys, "--format", "github")
    assert code == 1
    assert out.startswith("::error file=profiles/p.yaml,line=6,col=22,title=BLOCKS-001 ")


def stale(tuned):
    content = yaml.safe_load(tuned.read_text())
    content["entries"][0]["versions"] = {"pyyaml": "1.0"}
    tuned.write_text(yaml.safe_dump(content))


def forbidden(tuned):
    content = yaml.safe_load(tuned.read_text())
    content["entries"][0]["config"]["block_q"] = -64
    tuned.write_text(yaml.safe_dump(content))


FAULTS = {
    "damaged": (lambda tuned: tuned.write_text("schema: 1\nentries: ["), "tuned-file-damaged", 1),
    "stale": (stale, "is stale: versions.pyyaml 1.0 then", 1),
    "forbidden": (forbidden, "is stale: config.block_q: BLOCKS-001", 1),
    "copied": (
        lambda tuned: shutil.copytree(tuned.parent, tuned.parent.parent / "nvidia_h200"),
        f"device_name: the file is of {cpu_name()}, not of nvidia_h200",
        1,
    ),
    "problem changed": (
        lambda _: write(PROFILE.replace("float32", "float16")),
        "is of no problem of the profile: problem.dtype float32 there, float16 here",
        0,
    ),
    "orphaned": (lambda _: PATH.rename("profiles/q.yaml"), "there is no profile p in profiles any more", 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_tuned_files(repository, capsys, fault):
    damage, message, wanted = FAULTS[fault]
    write()
    damage(store_tuned(PATH, 256, tile(64, 64)))
    code, out, _ = gate(capsys, "--format", "github")
    assert message in out
    assert code == wanted
    assert gate(capsys, "--strict")[0] == 1


def test_a_finding_stands_at_its_entry(repository, capsys):
    write(PROFILE.replace("seq_len: 256", "seq_len: [128, 256]"))
    store_tuned(PATH, 128, tile(64, 64))
    tuned = store_tuned(PATH, 256, tile(64, 64), versions={"pyyaml": "1.0"})
    _, out, _ = gate(capsys)
    begins = [number for number, line in enumerate(tuned.read_text().splitlines(), 1) if line.startswith("- ")]
    assert out.startswith(f"{tuned}:{begins[1]}:1: error TUNED ")


def test_the_machine_formats(repository, capsys, tmp_path, monkeypatch):
    write(PROFILE.replace("block_q: 128", "block_q: -1"))
    summary, junit = tmp_path / "summary.md", tmp_path / "gate.xml"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, _ = gate(capsys, "--format", "json", "--junit", str(junit))
    document = json.loads(out)
    assert code == 1
    assert (document["version"], document["kind"], document["verdict"]) == (1, "gate", "fail")
    (profile,) = document["profiles"]
    assert [each["code"] for each in profile["findings"]] == ["BLOCKS-001"]
    assert summary.read_text().startswith("before\n## attnctl gate: ❌ fail\n")
    assert "| `profiles/p.yaml` | ❌ fail | 1 | 0 | the profile breaks rules |" in summary.read_text()
    root = ET.parse(junit).getroot()
    assert (root.get("tests"), root.get("failures")) == ("3", "1")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--base", "no-such-commit"], 2, "--base no-such-commit: profiles: no such commit"),
        (["--measure", "always", "--device", "9"], 4, "CUDA"),
    ],
)
def test_what_is_not_the_changes_fault(repository, capsys, args, code, message):
    pytest.importorskip("torch")
    write()
    repository()
    found, out, err = gate(capsys, *args)
    assert found == code
    assert message in out + err
    assert "regression" not in out + err


def test_a_base_outside_git(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    PATH.parent.mkdir()
    write()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    code, _, err = gate(capsys, "--base", "HEAD")
    assert code == 2
    assert "--base HEAD: profiles: " in err


def test_every_repository_needs_the_base(repository, capsys, tmp_path):
    """Where the commit was unknown, nothing was found to compare with, and the gate passed."""
    write()
    base = repository()
    other = tmp_path / "other" / "p.yaml"
    other.parent.mkdir()
    other.write_text(PROFILE)
    code, _, err = gate(capsys, str(other.parent), "--base", base)
    assert code == 2
    assert f"--base {base}: {other.parent}: " in err


def test_a_real_regression_against_the_base(repository, capsys):
    """Tiles of 16 x 16 take many times as long as 128 x 128: no noise hides that."""
    pytest.importorskip("torch")
    write()
    base = repository()
    store_tuned(PATH, 256, tile(16, 16))
    repository()
    code, out, _ = gate(capsys, "--base", base, "--measure", "always", "--cycles", "10")
    assert code == 1
    assert "against base: fail: ratio " in out


def test_what_did_not_change_is_not_measured(repository, capsys):
    pytest.importorskip("torch")
    write()
    store_tuned(PATH, 256, tile(64, 64))
    base = repository()
    PATH.write_text(PATH.read_text() + "description: another\n")
    code, out, err = gate(capsys, "--base", base, "--measure", "always")
    assert code == 0
    assert "against base: pass: the same config as there" in out
    assert "process 1" not in err
