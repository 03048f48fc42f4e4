"""Read what the compiler says about a kernel out of an object file that carries its device code."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF = b"\x7fELF"
_MACHINE_CUDA = 190
_NOBITS = 8  # a section type that takes no room in the file
# Attributes of .nv.info, and what we call them. Local memory is the kernel's own frame: registers that were spilled and
# arrays that are indexed; the stack has the frames of called functions, too.
_ATTRIBUTES = {0x2F: "registers", 0x11: "local_bytes", 0x12: "stack_bytes"}
_SIZED = 4  # an attribute's format: a 16-bit size, then the value


# How the host code fills a launch's configuration (x86-64): 1 for the third dimension of the block, and right behind it
# the bytes of dynamic shared memory, each stored at a displacement from some register.
_STORED_AT = rb"(?:[\x40-\x43\x45-\x47].|\x44[\x20-\x27].|[\x80-\x83\x85-\x87].{4}|\x84[\x20-\x27].{4})"
_LAUNCH = re.compile(rb"\xc7" + _STORED_AT + rb"\x01\0\0\0[\x48\x49]\xc7" + _STORED_AT + rb"(.{4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cubin:
    """The device code in an object file: its hash, and what a kernel takes, per thread but for shared memory.

    Of several kernels, the most that any of them takes.
    """

    binary: str
    resources: dict[str, int]


def read_cubin(data: bytes) -> Cubin | None:
    """The first cubin in an object file; None if there is none."""
    start = data.find(_ELF)
    while start >= 0:
        if struct.unpack_from("<H", data, start + 18)[0] == _MACHINE_CUDA:
            cubin = _read(data[start:])
            if smem_bytes := _dynamic_smem(data[:start]):
                cubin.resources["smem_bytes"] = smem_bytes
            return cubin
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
                if attribute in _ATTRIBUTES:
                    resource = _ATTRIBUTES[attribute]
                    resources[resource] = max(value, resources.get(resource, 0))
    return Cubin(digest.hexdigest(), resources)


def _dynamic_smem(host: bytes) -> int | None:
    """What the one launch in the host code that has any asks for; None where it is not written as expected."""
    sizes = {struct.unpack("<I", found[1])[0] for found in _LAUNCH.finditer(host)} - {0}
    return sizes.pop() if len(sizes) == 1 else None


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
