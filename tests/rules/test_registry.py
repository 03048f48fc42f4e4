"""Rules are found by walking; codes are found in any case, and near misses are named."""

import json
import subprocess
import sys

import pytest

from attnctl.errors import UsageError
from attnctl.profile.schema import built_in_families
from attnctl.rules.registry import all_rules, every_rule, find_rule, form_rules, general_rules


def test_all_kinds_of_rules_are_found():
    codes = set(all_rules())
    assert {"YAML001", "PROFILE001", "G001", "G306", "PAL-B003", "RFA4-001"} <= codes
    assert {each.code for each in form_rules()} | {each.code for each in general_rules()} <= codes


@pytest.mark.parametrize("code", ["G001", "g001", " G001 "])
def test_codes_in_any_case(code):
    assert find_rule(code).name == "heads-do-not-divide"


@pytest.mark.parametrize(
    ("code", "near"), [("PAL-B03", "PAL-B003"), ("heads-do-not-divide", "G001"), ("yaml-12", "YAML012")]
)
def test_near_codes_are_named(code, near):
    with pytest.raises(UsageError) as raised:
        find_rule(code)
    assert near in raised.value.hint


def test_a_family_that_does_not_load_hides_no_other_rule(family_folder):
    codes = {each.code for each in every_rule()}
    assert {"TOY-001", "PAL-B003"} <= codes


VALIDATE = """
import json, sys
from pathlib import Path
for name in ("torch", "jax", "cutlass", "flash_attn", "scipy", "numpy", "rich", "jsonschema"):
    sys.modules[name] = None
from attnctl.rules.check import check_profile
print(json.dumps([check_profile(Path(sys.argv[1])).case_count, sorted(sys.modules)]))
"""


@pytest.mark.parametrize("family", built_in_families())
def test_checking_a_profile_imports_its_own_family_and_no_framework(tmp_path, family):
    path = tmp_path / "p.yaml"
    path.write_text(f"family: {family}\narch: sm_90\nproblem: {{seq_len: 1000, num_heads_q: 4, head_dim: 64}}\n")
    run = subprocess.run(
        [sys.executable, "-c", VALIDATE, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    cases, modules = json.loads(run.stdout)
    assert cases == 1
    specs = {each for each in modules if each.startswith("attnctl_kernels.") and each.endswith(".spec")}
    assert (
        {f"attnctl_kernels.{family}.spec"} <= specs < {f"attnctl_kernels.{each}.spec" for each in built_in_families()}
    )
    assert not {"difflib", "attnctl.profile.schema", "attnctl.cli.app"} & set(modules)
