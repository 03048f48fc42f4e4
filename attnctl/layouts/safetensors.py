"""`.safetensors`: a JSON header with types, shapes and offsets, and the bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl.layouts.limits import MOST_HEADER_BYTES, Room, Unreadable

DTYPES: Mapping[str, str] = {
    "BOOL": "?", "I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8",
    "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


def read(path: Path, wanted: Mapping[str, str], room: Room) -> dict[str, NDArray[Any]]:
    """The wanted arrays of the file.

    Raises:
        Unreadable: the header is not one, or promises bytes that are not there.
    """
    found = {}
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
            raise Unreadable("its first 8 bytes are not the length of a safetensors header")
        header = json.loads(file.read(length))
        for name in wanted:
            if name in header:
                entry = header[name]
                start, stop = entry["data_offsets"]
                if entry["dtype"] not in DTYPES:
                    raise Unreadable(f"{name} holds {entry['dtype']}: save it as int32")
                dtype = np.dtype(DTYPES[entry["dtype"]])
                needed = room.take(name, entry["shape"]) * dtype.itemsize
                if not 0 <= start <= stop <= size - 8 - length or stop - start != needed:
                    raise Unreadable(f"{name} does not have the bytes that its shape {entry['shape']} needs")
                file.seek(8 + length + start)
                found[name] = np.frombuffer(file.read(needed), dtype).reshape(entry["shape"])
    return found
