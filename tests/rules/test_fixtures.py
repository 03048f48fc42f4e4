"""Every rule of every family has a page and two fixtures, and every fix that it offers works.

`fixtures/CODE/bad.yaml` breaks the rule, `good.yaml` does not. What `validate` finds is written on the line where it
is found, `# expect: CODE part of the message`, several times where one line has several findings.
"""

import copy
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from attnctl.profile.places import parse_field
from attnctl.rules.check import check_profile
from attnctl.rules.registry import all_rules, every_rule

FIXTURES = Path(__file__).parent / "fixtures"
RULES = all_rules()
EXPECT = re.compile(r"# expect: (\S+) ?(.*?)(?=\s*# expect:|\s*$)")

pytestmark = pytest.mark.usefixtures("family_folder")


def expectations(path):
    lines = path.read_bytes().decode("latin-1").split("\n")
    return [(number, *match) for number, line in enumerate(lines, 1) for match in EXPECT.findall(line)]


def matches(finding, expectation):
    line, code, part = expectation
    message = finding.message.encode().decode("latin-1")
    return (finding.line, finding.code) == (line, code) and part in message


def fixture_files():
    return sorted(path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*.yaml"))


def test_codes_are_unique():
    rules = {id(rule): rule for rule in every_rule()}.values()  # a family may use a rule of another
    assert [code for code, count in Counter(rule.code for rule in rules).items() if count > 1] == []


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_has_a_page(code):
    rule = RULES[code]
    missing = [part for part in ("What:", "Why:", "Fix:") if part not in rule.page]
    assert not missing, f"the docstring of {rule.name} lacks {' '.join(missing)}"
    assert rule.why, "why is shown behind every message"


# Those of the compiler are broken in tests/cli/test_validate_compile.py and tests/compile: no reading finds them.
@pytest.mark.parametrize("code", sorted(code for code in RULES if not code.startswith("COMPILE")))
def test_rule_has_fixtures(code):
    bad, good = FIXTURES / code / "bad.yaml", FIXTURES / code / "good.yaml"
    assert bad.is_file(), f"no {bad.relative_to(FIXTURES.parent)}"
    assert good.is_file(), f"no {good.relative_to(FIXTURES.parent)}"
    assert code in {expected for _, expected, _ in expectations(bad)}
    assert code not in {finding.code for finding in check_profile(good).findings}


def test_every_fixture_belongs_to_a_rule():
    assert sorted(path.name for path in FIXTURES.iterdir() if path.name not in RULES) == []


@pytest.mark.parametrize("name", fixture_files())
def test_findings_are_those_expected_on_their_lines(name):
    path = FIXTURES / name
    expected = expectations(path)
    findings = check_profile(path).findings
    surprising = [each for each in findings if not any(matches(each, other) for other in expected)]
    assert [(each.line, each.code, each.message) for each in surprising] == []
    assert [each for each in expected if not any(matches(other, each) for other in findings)] == []
    assert all(each.fix for each in findings)


def with_fix(data, fix):
    """A copy of ``data`` with one value changed, in the words of the file."""
    data = copy.deepcopy(data)
    *around, last = parse_field(fix.field)
    node = data
    for part in around:
        node = node[part] if isinstance(part, int) else node.setdefault(part, {})
    value = list(fix.value) if isinstance(fix.value, tuple) else fix.value
    if value is None:
        del node[last]
    else:
        node[last] = value
    return data


@pytest.mark.parametrize("name", [each for each in fixture_files() if each.endswith("/bad.yaml")])
def test_every_fix_makes_its_rule_pass(name, tmp_path):
    findings = check_profile(FIXTURES / name).findings
    fixed = tmp_path / "fixed.yaml"
    for finding in findings:
        for fix in finding.fixes:
            data = yaml.safe_load((FIXTURES / name).read_text(encoding="utf-8"))
            fixed.write_text(yaml.safe_dump(with_fix(data, fix)), encoding="utf-8")
            left = check_profile(fixed).findings
            assert not [each for each in left if (each.code, each.field) == (finding.code, finding.field)], fix
            assert not [each for each in left if each.code.startswith(("YAML", "PROFILE"))], fix
