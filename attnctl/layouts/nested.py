"""JSON: an object whose values are nested lists of whole numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.layouts.limits import MOST_DIMENSIONS, MOST_JSON_BYTES, Room, Unreadable


def read(path: Path, wanted: Mapping[str, str], room: Room) -> dict[str, NDArray[Any]]:
    """The wanted arrays of the file, as int32 where their numbers fit.

    Raises:
        Unreadable: the file is too long, or a value is not an array of whole numbers.
    """
    with path.open("rb") as file:
        text = file.read(MOST_JSON_BYTES + 1)
    if len(text) > MOST_JSON_BYTES:
        raise Unreadable(f"it is longer than {MOST_JSON_BYTES:,} bytes: save large arrays as .npz or .safetensors")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Unreadable("it is not a JSON object with a name per array")
    return {name: _array(name, document[name], room) for name in wanted if name in document}


def _array(name: str, value: Any, room: Room) -> NDArray[Any]:
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list) and len(shape) < MOST_DIMENSIONS:
        if any(not isinstance(each, list) or len(each) != len(level[0]) for each in level):
            raise Unreadable(f"the lists in {name} differ in length: fill rows up to one width")
        shape.append(len(level[0]))
        level = [item for each in level for item in each]
    if any(type(each) is not int for each in level):
        raise Unreadable(f"{name} holds something that is not a whole number")
    room.take(name, shape)
    fits = all(-(2**31) <= each < 2**31 for each in level)
    return np.array(level, np.int32 if fits else np.int64).reshape(shape)
