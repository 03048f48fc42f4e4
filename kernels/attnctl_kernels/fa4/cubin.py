"""Read what the compiler says about a kernel out of an object file that carries its device code."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF = b"\x7fELF"
_MACHINE_CUDA = 190
_NOBITS = 8  # a section type that takes no room in the file
_REGISTERS, _FRAME_BYTES = 0x2F, 0x11  # attributes of .nv.info
_SIZED = 4  # an attribute's format: a 16-bit size, then the value


@dataclass(frozen=True, slots=True)
class Cubin:
    """The device code in ``data``: its hash, and per kernel the registers and bytes of local memory."""

    binary: str
    resources: dict[str, int]


def read_cubin(data: bytes) -> Cubin | None:
    """The first cubin in an object file; None if there is none."""
    start = data.find(_ELF)
    while start >= 0:
        if struct.unpack_from("<H", data, start + 18)[0] == _MACHINE_CUDA:
            return _read(data[start:])
        start = data.find(_ELF, start + 1)
    return None


def _read(elf: bytes) -> Cubin:
    digest = hashlib.sha256()
    resources: dict[str, int] = {}
    for name, content in _sections(elf):
        if name.startswith((".text.", ".nv.constant", ".nv.info")):
            digest.update(content)
        if name == ".nv.info":
            for attribute, value in _attributes(content):
                if attribute == _REGISTERS:
                    resources["registers"] = value
                elif attribute == _FRAME_BYTES:
                    resources["local_bytes"] = value
    return Cubin(digest.hexdigest(), resources)


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * entry_size) for index in range(count)]
    names = headers[names_at][4]
    for name, kind, _, _, offset, size in headers:
        end = elf.index(b"\0", names + name)
        yield elf[names + name : end].decode(), b"" if kind == _NOBITS else elf[offset : offset + size]


def _attributes(info: bytes) -> Iterator[tuple[int, int]]:
    """Attribute number and value, for the attributes that are (symbol, value) pairs."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                yield attribute, struct.unpack_from("<I", info, at + 4)[0]
            at += size
