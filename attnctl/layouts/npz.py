"""NumPy's `.npz`: a zip of `.npy` files. Only numbers are read, and only as many as the header says."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from attnctl.layouts.limits import Room, Unreadable, members


def read(path: Path, wanted: Mapping[str, str], room: Room) -> dict[str, NDArray[Any]]:
    """The wanted arrays of the file.

    Raises:
        Unreadable: an array is not made of numbers, or is not what its header says.
    """
    found = {}
    with zipfile.ZipFile(path) as archive:
        for filename, info in members(archive).items():
            name = filename.removesuffix(".npy")
            if name in wanted:
                with archive.open(info) as file:
                    shape, fortran, dtype = _header(name, file)
                    count = room.take(name, shape)
                    if count * dtype.itemsize > info.file_size:
                        raise Unreadable(f"{name} says it has shape {list(shape)}, and the file is shorter")
                    if info.compress_type == zipfile.ZIP_STORED:
                        values = _stored(path, info, file.tell(), dtype, count)
                    else:
                        values = np.frombuffer(file.read(count * dtype.itemsize), dtype)
                if len(values) < count:
                    raise Unreadable(f"{name} says it has shape {list(shape)}, and the file ends before")
                found[name] = values.reshape(shape, order="F" if fortran else "C")
    return found


def _header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype.kind not in "biuf":
        raise Unreadable(f"{name} holds {dtype}, not numbers: np.savez(path, {name}=array.astype(np.int32))")
    return shape, fortran, dtype


def _stored(path: Path, info: zipfile.ZipInfo, start: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Values that are not compressed, read without the zip's checksum, which takes longer than all that we check."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26x2H", file.read(30))
        file.seek(name_length + extra_length + start, 1)
        return np.fromfile(file, dtype, count)
