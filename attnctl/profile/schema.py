"""The profile format as JSON Schema, for editors and other tools. ``python -m attnctl.profile.schema`` writes the file.

What the schema cannot say (which facts go with which mask, what divides what) is left to the rules.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import attnctl_kernels
from attnctl.profile.model import BUDGET_PATTERN, Profile
from attnctl_kernels.contract import Family
from attnctl_kernels.families import family_names, get_family

FILE = Path(__file__).with_name("schema.json")

Schema = dict[str, Any]


def json_schema(families: Iterable[str] | None = None) -> Schema:
    """The whole format; ``config`` and ``search`` as each of ``families`` defines them. Default: all that are found."""
    names = family_names() if families is None else tuple(families)
    schema = Profile.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "attnctl profile"
    schema["properties"]["family"] = {"type": "string", "enum": list(names)}
    schema["allOf"] = [_parameters_of(get_family(name)) for name in names]
    return schema


def built_in_families() -> tuple[str, ...]:
    """The families that ship with the package: those of the schema file."""
    folder = Path(str(attnctl_kernels.__file__)).parent
    names = {info.name for info in pkgutil.iter_modules([str(folder)]) if (folder / info.name / "spec.py").is_file()}
    return tuple(sorted(names))


def schema_text() -> str:
    """What the schema file holds."""
    return json.dumps(json_schema(built_in_families()), indent=2) + "\n"


def _parameters_of(family: Family) -> Schema:
    if family.flat_config:
        model = family.config_model(family.passes[0])
        config, search = _object(model), _search(model)
    else:
        models = {name: family.config_model(name) for name in family.passes}
        config = _closed({name: _object(model) for name, model in models.items()})
        search = _closed({name: _search(model) for name, model in models.items()})
    search["properties"]["budget"] = {"type": "string", "pattern": BUDGET_PATTERN}
    return {
        "if": {"properties": {"family": {"const": family.name}}, "required": ["family"]},
        "then": {"properties": {"config": config, "search": search}},
    }


def _object(model: type[BaseModel]) -> Schema:
    schema = _inlined(model.model_json_schema(by_alias=True))
    schema["additionalProperties"] = False
    return schema


def _search(model: type[BaseModel]) -> Schema:
    """A list of values for each parameter."""
    properties = {name: _list_of(each) for name, each in _object(model)["properties"].items()}
    side = {"type": "integer", "exclusiveMinimum": 0}
    properties["sparse_block"] = _list_of({"type": "array", "items": side, "minItems": 2, "maxItems": 2})
    return _closed(properties)


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": {key: items[key] for key in items if key != "default"}}


def _closed(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _inlined(schema: Schema) -> Schema:
    """References into the model's own definitions, replaced by what they refer to."""
    definitions = schema.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(each) for each in node]
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"].rpartition("/")[2]])
            return {key: inline(each) for key, each in node.items()}
        return node

    inlined: Schema = inline(schema)
    inlined.setdefault("properties", {})
    return inlined


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
