from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from attnctl import extras


def doctor(*args, **environ):
    return subprocess.run(
        [sys.executable, "-m", "attnctl", "doctor", *args],
        capture_output=True,
        text=True,
        env=os.environ | environ,
        timeout=200,
        check=False,
    )


@pytest.fixture
def smi(tmp_path):
    """A PATH with nothing but an ``nvidia-smi`` that prints what the test wants."""

    def write(script):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        return str(tmp_path)

    return write


@pytest.fixture
def families(tmp_path):
    """A folder of families of its own: one that cannot be imported, one that has rules only."""
    root = tmp_path / "families"
    for name, text in {
        "broken_family": "raise ImportError('libnothing.so.1: cannot open\\nshared object file')",
        "rules_only": """
from pydantic import BaseModel
from attnctl_kernels.contract import Family
class RulesOnly(Family):
    name, title, tunable = "rules_only", "Rules", False
    def config_model(self, pass_name): return BaseModel
    def default_config(self, problem, pass_name, arch, sparse_block): return {}
    def space(self, problem, pass_name, arch): return {}
FAMILY = RulesOnly()
""",
    }.items():
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
        (root / name / "spec.py").write_text(text)
    return str(root)


def test_a_machine_without_a_gpu_says_so_and_is_fine(tmp_path):
    done = doctor(PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "no GPU: nvidia-smi is not installed, so there is no NVIDIA driver" in done.stdout
    assert "\nblocks " in done.stdout


def test_our_own_family_can_be_tuned_on_the_processor(tmp_path):
    document = json.loads(doctor("--format", "json", PATH=str(tmp_path)).stdout)
    by_name = {each["family"]: each for each in document["families"]}
    assert document["version"] == 1
    assert (by_name["blocks"]["device"], by_name["blocks"]["reason"]) == ("cpu", "")
    assert by_name["fa4"]["device"] is None
    assert by_name["fa4"]["reason"].startswith("needs a GPU: sm_")
    assert by_name["fa4"]["rules"] > 0


def test_gpus_are_listed_as_the_driver_names_them(smi, families):
    path = smi("echo '0, NVIDIA H200, 9.0, 143771, 570.133.20'; echo '1, NVIDIA B200, 10.0, 183359, 570.133.20'")
    done = doctor(PATH=path, ATTNCTL_FAMILY_PATH=families)
    assert "GPU 0: NVIDIA H200 (sm_90), 143771 MiB, driver 570.133.20\n" in done.stdout
    assert "GPU 1: NVIDIA B200 (sm_100), 183359 MiB, driver 570.133.20\n" in done.stdout


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'NVIDIA-SMI has failed: no driver'; exit 9", "nvidia-smi says: NVIDIA-SMI has failed: no driver"),
        ("exit 1", "nvidia-smi says: nothing"),
        ("echo '0, weird'", "nvidia-smi says: 0, weird"),
    ],
)
def test_a_driver_that_does_not_work_is_quoted(smi, script, reason):
    done = doctor(PATH=smi(script))
    assert done.returncode == 0
    assert f"no GPU: {reason}\n" in done.stdout


def test_a_family_that_cannot_be_loaded_is_a_finding_not_a_crash(families, tmp_path):
    done = doctor(PATH=str(tmp_path), ATTNCTL_FAMILY_PATH=families)
    assert (done.returncode, done.stderr) == (1, "")
    rows = {line.split()[0]: line.split(maxsplit=3)[3] for line in done.stdout.splitlines() if " no: " in line}
    assert rows["broken_family"] == "no: cannot be loaded: ImportError: libnothing.so.1: cannot open shared object file"
    assert rows["rules_only"] == "no: attnctl has rules for it, but no launcher"


def test_the_tool_itself_imports_no_framework(tmp_path):
    script = "import sys; from attnctl.cli.app import run; run(['doctor']); print({'torch', 'jax'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": str(tmp_path)},
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()"


def test_missing_packages_are_those_of_included_extras_too(tmp_path, monkeypatch):
    def install(name, *requirements):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {each}" for each in requirements)]))

    install(
        "demo",
        "typer>=0.15",
        "demo-torch>=2.7; extra == 'tune'",
        'demo[tune]; extra == "fa4"',
        "demo-kernel>=4.0; extra == 'fa4'",
        "another_one[a,b]<2,>=1 ; python_version > '3.10' and extra == 'fa4'",
        "unrelated; extra == 'jax'",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert extras.missing("fa4", "demo") == ("another_one", "demo-kernel", "demo-torch")
    install("demo_torch")
    importlib.invalidate_caches()
    assert extras.missing("fa4", "demo") == ("another_one", "demo-kernel")
    assert extras.missing("tune", "demo") == ()


def test_source_tree_without_metadata_lacks_nothing_that_it_could_name():
    assert extras.missing("tune", "no-such-distribution") == ()


@pytest.fixture
def package(tmp_path):
    """A framework of which no module has bytecode, and the PYTHONPATH that leads to it."""
    folder = tmp_path / "flash_attn" / "cute"
    folder.mkdir(parents=True)
    for name in ("__init__", "interface"):
        (folder / f"{name}.py").write_text("x = 1\n")
    return tmp_path / "flash_attn", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])


def compiled_anew(**environ):
    command = "from attnctl.bytecode import compiled_anew; print(*compiled_anew())"
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, env=os.environ | environ, check=True
    )
    return done.stdout


def test_bytecode_is_missing_where_there_is_none_and_none_will_be_written(package):
    folder, path = package
    assert str(folder) in compiled_anew(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    assert str(folder) not in compiled_anew(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="")
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", folder], check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    )
    assert str(folder) not in compiled_anew(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")


def test_packages_without_bytecode_are_named_with_what_helps(package):
    folder, path = package
    done = doctor(PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=path)
    assert "slow starts" in done.stdout
    assert f"python -m compileall -q {folder}" in done.stdout
