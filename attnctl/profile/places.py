"""Where a field stands in a file as written: from the paths of models and rules to lines and columns."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from attnctl.profile.document import Document, FieldPath, Place

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")

# A length, a head count or a head size that is left out is taken from the next of its line.
_TAKEN_FROM = {
    "seqlen_q": ("seq_len",),
    "seqlen_k": ("seq_len", "seqlen_q"),
    "seq_len": ("seqlen_q",),
    "num_heads_kv": ("num_heads_q",),
    "head_dim_v": ("head_dim",),
}

_LENGTHS = ("seq_len", "seqlen_q", "seqlen_k")  # which may list one value per problem


@lru_cache(maxsize=4096)
def parse_field(field: str) -> FieldPath:
    """``problem.seq_len[1]`` -> ``("problem", "seq_len", 1)``."""
    return tuple(int(index) if index else name for name, index in _PART.findall(field))


def value_at(document: Document, path: FieldPath) -> Any:
    """The value of a path that is written."""
    node: Any = document.data
    for part in path:
        node = node[part]
    return node


def written_path(document: Document, location: FieldPath) -> FieldPath:
    """``location`` as far as the file has it; parts that only the model has are passed over."""
    path: FieldPath = ()
    for part in location:
        for name in (part, ("q", "kv")[part] if part in (0, 1) else part):  # [128, 64] or {q: 128, kv: 64}
            if (*path, name) in document.values:
                path = (*path, name)
                break
    return path


def place_of(document: Document, path: FieldPath) -> Place:
    """A value's place; a list's or mapping's is that of its key, and the file's that of its first key."""
    if not path:
        return document.start
    value = value_at(document, path)
    if isinstance(value, dict | tuple) or value is None:
        return document.keys.get(path) or document.values[path]
    return document.values[path]


def source_path(document: Document, field: str, index: int | None, pass_name: str, *, flat_config: bool) -> FieldPath:
    """The path at which the file says, or would say, what rules call ``field``."""
    head, *rest = parse_field(field)
    if head == "problem" and rest:
        name = str(rest[0])
        for other in (name, *_TAKEN_FROM.get(name, ())):
            if ("problem", other) in document.values:
                path = ("problem", other, *rest[1:])
                return _element(document, path, index) if other in _LENGTHS else path
    elif head == "config" and rest and not flat_config and rest[0] not in ("forward", "backward"):
        return ("config", pass_name, *rest)
    elif head == "layout" and (head, *rest) not in document.values and ("layout", "path") in document.values:
        return ("layout", "path")  # what the file of arrays says
    elif head == "sparse_block" and ("sparse_block", pass_name) in document.values:
        return ("sparse_block", pass_name, *rest)
    return (head, *rest)


def _element(document: Document, path: FieldPath, index: int | None) -> FieldPath:
    """Of a list of lengths, the one that this problem has."""
    if index is not None and (*path, index) in document.values:
        return (*path, index)
    return path
