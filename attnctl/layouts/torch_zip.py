"""torch's `.pt` files: a dict of tensors, read without torch. Nothing in the file can call anything.

The file is a zip with a pickle that says where each tensor's bytes are. The pickle is first searched for operations
that a dict of tensors does not need; the unpickler then knows two functions, both written here.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from attnctl.layouts.limits import MOST_HEADER_BYTES, MOST_INDICES, Room, Unreadable, members

CONVERT = 'torch.save({"mask_block_cnt": cnt, "mask_block_idx": idx}, path)'
DTYPES: Mapping[str, str] = {
    "BoolStorage": "?", "ByteStorage": "u1", "CharStorage": "i1", "ShortStorage": "i2", "IntStorage": "i4",
    "LongStorage": "i8", "HalfStorage": "f2", "FloatStorage": "f4", "DoubleStorage": "f8",
}  # fmt: skip
_OPERATIONS = """
    PROTO FRAME STOP MARK POP_MARK GLOBAL STACK_GLOBAL REDUCE BINPERSID EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND
    APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINUNICODE SHORT_BINUNICODE BININT BININT1 BININT2 LONG1 NONE NEWTRUE
    NEWFALSE BINFLOAT BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE
"""
OPERATIONS = frozenset(_OPERATIONS.split())


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Tensors(pickle._Unpickler):  # noqa: SLF001 - the one in C makes a table as long as a number in the file says
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in DTYPES:
            return name
        raise Unreadable(f"it holds a {module}.{name}, not only tensors: {CONVERT}")

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, key, *_ = pid
        if kind != "storage" or not isinstance(key, str) or dtype not in DTYPES:
            raise Unreadable(f"it holds something else than tensors: {CONVERT}")
        return _Storage(key, DTYPES[dtype])


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(size), tuple(stride))


def read(path: Path, wanted: Mapping[str, str], room: Room) -> dict[str, NDArray[Any]]:
    """The wanted tensors of the file.

    Raises:
        Unreadable: it holds anything but tensors, or is of torch's form before 1.6.
    """
    if not zipfile.is_zipfile(path):
        raise Unreadable(f"it is not a zip, as torch.save writes since 1.6: {CONVERT}")
    with zipfile.ZipFile(path) as archive:
        inside = members(archive)
        pickled = next((each for each in inside if each.endswith("/data.pkl") or each == "data.pkl"), None)
        if pickled is None:
            raise Unreadable(f"it has no data.pkl inside: {CONVERT}")
        data = _Data(archive, inside, pickled.removesuffix("data.pkl"))
        tensors = _unpickle(archive, inside[pickled])
        named = ((name, tensors.get(name)) for name in wanted)
        return {name: data.array(name, tensor, room) for name, tensor in named if isinstance(tensor, _Tensor)}


@dataclass(frozen=True, slots=True)
class _Data:
    """The bytes of the tensors, one member of the zip for each storage."""

    archive: zipfile.ZipFile
    members: Mapping[str, zipfile.ZipInfo]
    folder: str

    @property
    def order(self) -> str:
        name = f"{self.folder}byteorder"
        if name not in self.members:
            return "<"
        with self.archive.open(name) as file:
            return ">" if file.read(3) == b"big" else "<"

    def array(self, name: str, tensor: _Tensor, room: Room) -> NDArray[Any]:
        """A tensor, whatever its strides."""
        storage = tensor.storage
        info = self.members.get(f"{self.folder}data/{storage.key}") if isinstance(storage, _Storage) else None
        if info is None:
            raise Unreadable(f"the bytes of {name} are not in the file")
        dtype = np.dtype(self.order + storage.dtype)
        room.take(name, tensor.size)
        numbers = (tensor.offset, *tensor.stride)
        if len(tensor.stride) != len(tensor.size) or any(type(each) is not int or each < 0 for each in numbers):
            raise Unreadable(f"{name} has strides that no tensor has")
        if 0 in tensor.size:
            return np.zeros(tensor.size, dtype)
        reach = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.size, tensor.stride, strict=True)) + 1
        if reach > MOST_INDICES:
            raise Unreadable(f"{name} is a view of more than {MOST_INDICES:,} values: save {name}.clone()")
        with self.archive.open(info) as file:
            data = file.read(reach * dtype.itemsize)
        if len(data) < reach * dtype.itemsize:
            raise Unreadable(f"the bytes of {name} end too early")
        flat = np.frombuffer(data, dtype)[tensor.offset :]
        view = as_strided(flat, tensor.size, [step * dtype.itemsize for step in tensor.stride], writeable=False)
        return np.ascontiguousarray(view)


def _unpickle(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Mapping[Any, Any]:
    with archive.open(info) as file:
        data = file.read(MOST_HEADER_BYTES + 1)
    if len(data) > MOST_HEADER_BYTES:
        raise Unreadable(f"its pickle is longer than {MOST_HEADER_BYTES:,} bytes: {CONVERT}")
    foreign = sorted({each.name for each, _, _ in pickletools.genops(data)} - OPERATIONS)
    if foreign:
        raise Unreadable(f"its pickle does more than name tensors ({', '.join(foreign[:3])}): {CONVERT}")
    found = _Tensors(io.BytesIO(data)).load()
    if not isinstance(found, Mapping):
        raise Unreadable(f"it holds no dict of tensors: {CONVERT}")
    return found
