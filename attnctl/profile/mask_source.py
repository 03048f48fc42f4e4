"""Where the facts of a mask come from when the profile does not list them: a file, or a seed."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from attnctl_kernels.contract import Mask, join_words

if TYPE_CHECKING:
    from attnctl.profile.model import MaskSection

FACTS = {"document": ("document_lens",), "blocks": ("block_size", "rows")}  # that a file may hold, by pattern
MOST_BYTES = 16 << 20


class Unusable(Exception):
    """Why a mask cannot be made: the field, its fault and what works instead."""

    def __init__(self, field: str, fault: str, advice: str) -> None:
        super().__init__(fault)
        self.field, self.fault, self.advice = field, fault, advice


def mask_of(section: MaskSection, seqlen_k: int) -> Mask:
    """The mask of one problem: documents that are drawn fill its keys."""
    facts = {name: getattr(section, name) for name in Mask.model_fields}
    if section.seed is not None and section.document_len is not None:
        drawn = document_lens(section.seed, section.document_len, seqlen_k)
        facts.update(document_len=None, document_lens=drawn)
    return Mask.model_construct(**facts)


@lru_cache(maxsize=256)
def document_lens(seed: int, mean: int, seqlen_k: int) -> tuple[int, ...]:
    """Exponentially distributed lengths that fill ``seqlen_k`` keys; the same on every machine."""
    import math  # noqa: PLC0415 - few profiles need them
    import random  # noqa: PLC0415

    generator = random.Random(seed)  # noqa: S311 - not cryptography
    lengths: list[int] = []
    left = seqlen_k
    while left > 0:
        length = min(left, math.ceil(-mean * math.log(1.0 - generator.random())) or 1)
        lengths.append(length)
        left -= length
    return tuple(lengths)


def completed(section: MaskSection, folder: Path) -> MaskSection:
    """``section`` with what its file holds.

    Raises:
        Unusable: what it says of a seed or a file makes no mask.
    """
    if section.seed is not None and (section.pattern != "document" or not (section.document_len or 0) > 0):
        advice = "write `pattern: document` and `document_len`, the mean, beside it, or remove it"
        raise Unusable("seed", "draws the lengths of documents, and there is no mean for them", advice)
    if section.path is None:
        return section
    wanted = FACTS.get(section.pattern)
    if wanted is None:
        raise Unusable("path", f"pattern {section.pattern} takes nothing from a file", "remove it")
    if given := [name for name in (*wanted, "document_len") if getattr(section, name) is not None]:
        raise Unusable("path", f"{join_words(given, 'and')} beside it says the same", f"remove {given[0]} or the path")
    return section.model_copy(update=_read(folder / section.path, wanted))


def _read(path: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    example = "{" + ", ".join(f'"{name}": {_EXAMPLES[name]}' for name in wanted) + "}"
    advice = f"give a JSON file such as {example}"
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise Unusable("path", f"{path} is not a file", advice)
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise Unusable("path", f"{path} is longer than {MOST_BYTES:,} bytes", advice)
        found = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or f"is not JSON ({error})"
        raise Unusable("path", f"{path}: {reason}", advice) from None
    if not isinstance(found, dict) or set(found) != set(wanted):
        raise Unusable("path", f"{path} does not hold {join_words(wanted, 'and')}, and only that", advice)
    try:
        return {name: getattr(Mask.model_validate_json(json.dumps(found)), name) for name in wanted}
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Unusable("path", f"{path}: {place}: {first['msg'][:1].lower()}{first['msg'][1:]}", advice) from None


_EXAMPLES = {"document_lens": "[1000, 2000, 1096]", "block_size": "[128, 128]", "rows": "[[0], [0, 1]]"}
