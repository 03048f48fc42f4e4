"""The parts of a profile whose names belong to the family: ``config`` and ``search``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from attnctl.profile.document import FieldPath, dotted
from attnctl.profile.faults import DURATION, LIST, MAPPING, PAIR, Faults
from attnctl.profile.model import BUDGET_PATTERN
from attnctl.rules.form import fields
from attnctl_kernels.contract import Family, PassName


def check_config(faults: Faults, family: Family) -> None:
    """Names and types of ``config``, by the family's own models."""
    for path, values, pass_name in _sections(faults, family, "config"):
        model = family.config_model(pass_name)
        try:
            model.model_validate(values, strict=True)
        except ValidationError as error:
            faults.of_model(error, below=path, known=model.model_fields, elsewhere=_other_passes(family, model))


def check_search(faults: Faults, family: Family) -> None:
    """Each value that ``search`` lists must be one that ``config`` could hold."""
    _check_budget(faults)
    for path, values, pass_name in _sections(faults, family, "search"):
        model = family.config_model(pass_name)
        for name, listed in values.items():
            if name != "budget" or path != ("search",):
                _check_listed(faults, (*path, name), listed, model)


def _check_budget(faults: Faults) -> None:
    section = (faults.document.data or {}).get("search")
    budget = section.get("budget") if isinstance(section, dict) else None
    path = ("search", "budget")
    if budget is not None and not isinstance(budget, str):
        faults.wrong_type(path, DURATION)
    elif budget is not None and not re.fullmatch(BUDGET_PATTERN, budget):
        facts = (dotted(path), faults.shown(path), f"not {DURATION}", f"write {DURATION}")
        faults.add(fields.value_malformed, path, *facts, wanted=DURATION)


def _check_listed(faults: Faults, path: FieldPath, listed: Any, model: type[BaseModel]) -> None:
    name = str(path[-1])
    if name not in model.model_fields and name != "sparse_block":
        faults.unknown_key(path, [*model.model_fields, "sparse_block"], {})
    elif not isinstance(listed, tuple) or not listed:
        faults.wrong_type(path, LIST)
    else:
        for index, value in enumerate(listed):
            if faults.full:
                break
            if name == "sparse_block":
                if not _is_pair(value):
                    faults.wrong_type((*path, index), PAIR)
                continue
            try:
                model.model_validate({name: value}, strict=True)
            except ValidationError as error:
                for each in error.errors(include_url=False, include_input=False):
                    if each["loc"][:1] == (name,):  # not what the other parameters lack
                        faults.of_error(each, (*path, index, *each["loc"][1:]), model.model_fields, {})


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(type(each) is int and each > 0 for each in value)


def _sections(faults: Faults, family: Family, head: str) -> Iterator[tuple[FieldPath, dict[str, Any], PassName]]:
    """Where parameters stand: below ``head`` itself, or below each pass. Reports what does not belong there."""
    section = (faults.document.data or {}).get(head)
    if not isinstance(section, dict):
        return
    if family.flat_config:
        known = family.config_model(family.passes[0]).model_fields
        misplaced = [name for name in ("forward", "backward") if name in section and name not in known]
        for name in misplaced:
            advice = f"this family has one set of parameters for all passes: write them below `{head}` itself"
            faults.add(fields.field_unknown, (head, name), name, f" in `{head}`", advice)
        yield (head,), {name: section[name] for name in section if name not in misplaced}, family.passes[0]
        return
    for name, values in section.items():
        if name == "budget" and head == "search":
            continue
        if name not in family.passes:
            models = {f"{head}.{each}": family.config_model(each).model_fields for each in family.passes}
            faults.unknown_key((head, name), family.passes, models)
        elif not isinstance(values, dict):
            faults.wrong_type((head, name), MAPPING)
        else:
            yield (head, name), values, name


def _other_passes(family: Family, model: type[BaseModel]) -> dict[str, Any]:
    if family.flat_config:
        return {}
    models = {each: family.config_model(each) for each in family.passes}
    return {f"config.{name}": other.model_fields for name, other in models.items() if other is not model}
