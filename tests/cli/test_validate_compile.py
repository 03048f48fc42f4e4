"""`attnctl validate --compile`: real compile workers that fail in every way, and flash-attn-4 without a GPU."""

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from cli_profiles import GOOD

from attnctl import extras

ROOT = Path(__file__).parents[2]
FAULTY = """\
family: faulty
problem: {seq_len: 256, num_heads_q: 2, head_dim: 32, dtype: float32}
config: {fault: FAULT}
"""
FA4 = """\
family: fa4
arch: ARCH
passes: [forward, backward]
problem: {seq_len: [1024, 2048, 4096], num_heads_q: 4, head_dim: 64}
config: {forward: {TILE}, backward: {BACKWARD}}
"""
SMALL = "tile_m: 64, tile_n: 64, SdP_swapAB: false, AtomLayoutNdKV: 1, AtomLayoutMdQ: 1, num_stages_PdS: 1"
HAS_FA4 = all(util.find_spec(name) for name in ("torch", "flash_attn", "cutlass", "quack", "triton"))


def validate(folder, *args, **variables):
    """As a user would run it; the workers find the test families, and see no GPU."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    families = {"ATTNCTL_FAMILY_PATH": str(ROOT / "tests" / "families")}
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    return subprocess.run(
        [sys.executable, "-m", "attnctl", "validate", "--compile", *args],
        cwd=folder,
        env=kept | families | path | variables,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """One run over a profile per fault."""
    folder = tmp_path_factory.mktemp("faults")
    for fault in ("none", "compile_error", "compile_abort", "compile_hang"):
        (folder / f"{fault}.yaml").write_text(FAULTY.replace("FAULT", fault))
    (folder / "twin.yaml").write_text(FAULTY.replace("FAULT", "none"))
    (folder / "wrong.yaml").write_text(FAULTY.replace("FAULT", "none").replace("32,", "32, num_heads_kv: 3,"))
    done = validate(folder, "--format", "json", "--jobs", "1", "--deadline", "5", ".")
    return done, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("fault", "code", "part"),
    [
        ("compile_error", "COMPILE001", "does not compile: tile 7 is not supported"),
        ("compile_abort", "COMPILE002", "ended its process: killed by SIGABRT"),
        ("compile_hang", "COMPILE003", "was not compiled after 5 s"),
    ],
)
def test_what_a_compiler_does_is_a_finding_at_the_config(faults, fault, code, part):
    (finding,) = [each for each in faults[1]["findings"] if each["path"] == f"{fault}.yaml"]
    assert (finding["code"], finding["severity"]) == (code, "error")
    assert (finding["line"], finding["column"], finding["field"], finding["pass"]) == (3, 1, "config", "forward")
    assert part in finding["message"]
    assert f"fault={fault}" in finding["message"]


def test_a_failure_costs_one_kernel(faults):
    done, document = faults
    assert done.returncode == 1
    outcomes = {each["path"]: each["outcome"] for each in document["compiled"]}
    assert outcomes == {
        "none.yaml": "ok",
        "twin.yaml": "ok",
        "compile_error.yaml": "compile_error",
        "compile_abort.yaml": "worker_died",
        "compile_hang.yaml": "timeout",
    }


def test_the_same_kernel_of_two_profiles_is_compiled_once(faults):
    assert "compiling 4 kernels of faulty in 1 worker\n" in faults[0].stderr


def test_what_breaks_a_rule_is_not_compiled(faults):
    assert faults[1]["notes"] == [
        {"path": "wrong.yaml", "note": "not compiled: 1 of 1 cases, which have errors"},
    ]


def test_a_missing_package_names_its_extra(tmp_path):
    (tmp_path / "needy.yaml").write_text("family: needy\nproblem: {seq_len: 256, num_heads_q: 2, head_dim: 32}\n")
    done = validate(tmp_path, "needy.yaml")
    assert done.returncode == 4
    assert "error: package_that_nobody_has is not installed\nhint: pip install 'attnctl[needy]'\n" in done.stderr
    assert done.stdout == ""


LATE = """\
class Launcher:
    framework = "torch"
    compiles = True

    def warm_up(self):
        pass

    def versions(self):
        return {}

    def compile(self, task, candidate):
        import package_that_nobody_has


LAUNCHER = Launcher()
"""


@pytest.mark.skipif(not util.find_spec("torch"), reason="torch is not installed")
def test_a_package_that_is_missed_late_does_too(tmp_path):
    family = tmp_path / "families" / "late"
    family.mkdir(parents=True)
    spec = (ROOT / "tests" / "families" / "needy" / "spec.py").read_text()
    (family / "spec.py").write_text(spec.replace('name = "needy"', 'name = "late"'))
    (family / "__init__.py").touch()
    (family / "launch.py").write_text(LATE)
    (tmp_path / "p.yaml").write_text("family: late\nproblem: {seq_len: 256, num_heads_q: 2, head_dim: 32}\n")
    done = validate(tmp_path, "p.yaml", ATTNCTL_FAMILY_PATH=str(tmp_path / "families"))
    assert done.returncode == 4
    assert "error: package_that_nobody_has is not installed\nhint: pip install 'attnctl[needy]'\n" in done.stderr


@pytest.mark.skipif(not extras.is_complete("tune"), reason="needs all of the extra tune")
def test_an_import_that_no_extra_would_mend_names_its_line(tmp_path):
    """A slip in somebody's own launch.py is no missing package of attnctl's."""
    family = tmp_path / "families" / "slip"
    family.mkdir(parents=True)
    spec = (ROOT / "tests" / "families" / "needy" / "spec.py").read_text()
    (family / "spec.py").write_text(
        spec.replace('name = "needy"', 'name = "slip"').replace('extra = "needy"', 'extra = "tune"')
    )
    (family / "__init__.py").touch()
    (family / "launch.py").write_text(LATE)
    (tmp_path / "p.yaml").write_text("family: slip\nproblem: {seq_len: 256, num_heads_q: 2, head_dim: 32}\n")
    done = validate(tmp_path, "p.yaml", ATTNCTL_FAMILY_PATH=str(tmp_path / "families"))
    assert done.returncode == 4
    assert f"error: {family}/launch.py:12: there is no module package_that_nobody_has\n" in done.stderr
    assert "pip install" not in done.stderr


def test_options_of_compiling_belong_to_it(attnctl, write):
    done = attnctl("validate", write("p.yaml", GOOD), "--jobs", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --jobs and --deadline are about compiling\nhint: add --compile\n"


@pytest.mark.parametrize(
    ("profile", "note"),
    [
        (
            "family: ranker_triton\narch: sm_90\nproblem: {seq_len: 1024, num_heads_q: 4, head_dim: 64}\n",
            "attnctl knows the rules of ranker_triton, and has no launcher for it",
        ),
        (
            "family: fa4\narch: sm_80\nproblem: {seq_len: 1024, num_heads_q: 4, head_dim: 64}\n",
            "attnctl compiles fa4 for sm_90 and sm_100, not for sm_80",
        ),
    ],
)
def test_nothing_to_compile_is_a_note_and_starts_no_worker(tmp_path, profile, note):
    (tmp_path / "p.yaml").write_text(profile)
    done = validate(tmp_path, "p.yaml", "--strict")
    assert done.stdout == f"p.yaml: not compiled: {note}\n"
    assert (done.returncode, done.stderr) == (0, "1 file, 1 problem: 0 errors, 0 warnings\n")
    assert not (tmp_path / ".attnctl").exists()


@pytest.mark.skipif(not util.find_spec("torch"), reason="torch is not installed")
def test_a_family_that_compiles_nothing_says_so(tmp_path):
    (tmp_path / "p.yaml").write_text("family: blocks\nproblem: {seq_len: 256, num_heads_q: 2, head_dim: 32}\n")
    done = validate(tmp_path, "p.yaml")
    assert (done.returncode, done.stdout) == (0, "p.yaml: not compiled: blocks has nothing to compile ahead\n")


@pytest.mark.skipif(not HAS_FA4, reason="flash-attn-4 is not installed")
@pytest.mark.parametrize(
    ("arch", "tile", "backward", "smem_bytes"),
    [
        ("sm_90", "tile_m: 64, tile_n: 16", SMALL, 64 * 64 * 2 + 2 * 16 * 128 * 2 + 1024),
        ("sm_100", "tile_m: 128", "", 232448),
    ],
)
def test_fa4_is_compiled_without_a_gpu_and_comes_from_the_cache_then(tmp_path, arch, tile, backward, smem_bytes):
    (tmp_path / "p.yaml").write_text(FA4.replace("ARCH", arch).replace("TILE", tile).replace("BACKWARD", backward))
    first, second = (json.loads(validate(tmp_path, "p.yaml", "--format", "json").stdout) for _ in range(2))
    assert [each["pass"] for each in first["compiled"]] == ["forward", "backward"]
    assert first["compiled"][0]["resources"]["smem_bytes"] == smem_bytes
    for compiled, again in zip(first["compiled"], second["compiled"], strict=True):
        assert (compiled["outcome"], compiled["arch"], compiled["problems"]) == ("ok", arch, 3)
        assert set(compiled["resources"]) == {"registers", "local_bytes", "stack_bytes", "smem_bytes"}
        assert (compiled["cached"], again["cached"]) == (False, True)
        assert again["resources"] == compiled["resources"]
    assert first["notes"] == []
