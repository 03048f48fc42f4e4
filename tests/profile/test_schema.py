"""The JSON Schema says the same as the loader, as far as a schema can."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from attnctl.profile.load import load
from attnctl.profile.schema import FILE, built_in_families, json_schema, schema_text

FIXTURES = Path(__file__).parents[1] / "rules" / "fixtures"
PROFILES = Path(__file__).parents[2] / "profiles"
SCHEMA = json_schema(built_in_families())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# Faults that are gone once the file is data: a schema sees nothing of them.
OF_THE_FILE = ("YAML001", "YAML008", "YAML009", "YAML010", "YAML011", "YAML006", "YAML007", "YAML014")
# Faults of two fields together, or of another file.
OF_SEVERAL = ("PROFILE006", "PROFILE009")


def test_the_file_in_the_package_is_current():
    assert FILE.read_text(encoding="utf-8") == schema_text(), "run: python -m attnctl.profile.schema"


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def good_files():
    return [*sorted(FIXTURES.glob("*/good.yaml")), *sorted(PROFILES.glob("*.yaml"))]


@pytest.mark.parametrize("path", good_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_loads_is_valid(path):
    result = load(path)
    if result.family is None or result.family.name not in built_in_families():
        pytest.skip("a family of the tests, which the schema of the package does not know")
    VALIDATOR.validate(yaml.safe_load(path.read_bytes().decode("utf-8", "replace")))


@pytest.mark.parametrize("code", ["YAML002", "YAML003", "YAML004", "YAML005", "YAML013"])
def test_files_that_are_no_profile_are_invalid(code):
    text = (FIXTURES / code / "bad.yaml").read_text(encoding="utf-8").replace("*a", "a")
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("PROFILE*/bad.yaml")), ids=lambda path: path.parent.name)
def test_wrong_fields_are_invalid(path):
    if path.parent.name in OF_SEVERAL:
        pytest.skip("a schema cannot compare two fields")
    assert not VALIDATOR.is_valid(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("config", "valid"),
    [
        ({"forward": {"block_q": 64}}, True),
        ({"forward": {"block_q": "64"}}, False),
        ({"forward": {"tile_m": 64}}, False),
        ({"block_q": 64}, False),
    ],
)
def test_parameters_follow_the_family(config, valid):
    data = {"family": "blocks", "problem": {"seq_len": 64, "num_heads_q": 1, "head_dim": 64}, "config": config}
    assert VALIDATOR.is_valid(data) is valid


@pytest.mark.parametrize(
    ("search", "valid"),
    [
        ({"budget": "10m", "forward": {"block_q": [64, 128], "sparse_block": [[64, 64]]}}, True),
        ({"budget": "10"}, False),
        ({"forward": {"block_q": 64}}, False),
        ({"forward": {"block_q": ["64"]}}, False),
        ({"forward": {"sparse_block": [[64]]}}, False),
    ],
)
def test_search_lists_values(search, valid):
    data = {"family": "blocks", "problem": {"seq_len": 64, "num_heads_q": 1, "head_dim": 64}, "search": search}
    assert VALIDATOR.is_valid(data) is valid
