"""Read the block arrays of a file, whatever its form. What cannot be read is a fault of the result, no exception."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnctl.layouts.limits import Room, Unreadable
from attnctl_kernels.block_arrays import ALIASES, NAMES, BlockArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

Reader = Callable[[Path, "Mapping[str, str]", Room], "Mapping[str, NDArray[Any]]"]

WANTED: Mapping[str, str] = {**{name: name for name in NAMES}, **ALIASES}


def read_arrays(path: Path) -> BlockArrays:
    """The arrays of ``path`` under their documented names; read once while the file does not change."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        return BlockArrays(path.name, fault=f"it cannot be read: {getattr(error, 'strerror', None) or error}")
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, _changed: int, _size: int) -> BlockArrays:
    reader = _reader(path)
    if not path.is_file() or reader is None:
        return BlockArrays(path.name, fault="it is not a file that ends in .npz, .safetensors, .pt or .json")
    try:
        found = reader(path, WANTED, Room())
    except Unreadable as error:
        return BlockArrays(path.name, fault=str(error))
    except MemoryError:
        return BlockArrays(path.name, fault="this machine has not enough memory for it")
    except Exception as error:  # noqa: BLE001 - the file may hold anything; whatever a parser says of it is a finding
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return BlockArrays(path.name, fault=f"it is broken, or another kind of file ({text})")
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in found.items():
        if WANTED[name] in arrays:
            return BlockArrays(path.name, fault=f"it holds {WANTED[name]} twice, once as {name}")
        arrays[WANTED[name]] = array
    return BlockArrays(path.name, arrays)


def _reader(path: Path) -> Reader | None:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        from attnctl.layouts.npz import read  # noqa: PLC0415 - NumPy
    elif suffix == ".safetensors":
        from attnctl.layouts.safetensors import read  # noqa: PLC0415
    elif suffix in (".pt", ".pth"):
        from attnctl.layouts.torch_zip import read  # noqa: PLC0415
    elif suffix == ".json":
        from attnctl.layouts.nested import read  # noqa: PLC0415
    else:
        return None
    return read
