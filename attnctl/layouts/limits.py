"""How much of a layout file is read, and how its readers say that it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

MOST_INDICES = 1 << 28  # in all arrays of a file together
MOST_HEADER_BYTES = 1 << 20
MOST_JSON_BYTES = 16 << 20  # which may make 40 times as many bytes of lists
MOST_DIMENSIONS = 8


class Unreadable(Exception):
    """Why a file is not read: one clause, with what to do where that is known."""


def members(archive: ZipFile) -> dict[str, ZipInfo]:
    """What a zip holds, by name.

    Raises:
        Unreadable: something is compressed in a way that takes as much memory as the file says.
    """
    found = {info.filename: info for info in archive.infolist()}
    odd = next((name for name, info in found.items() if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED)), None)
    if odd is not None:
        raise Unreadable(f"{odd} is compressed in another way than deflate, which numpy and torch do not use")
    return found


class Room:
    """Counts what is read, so that a small file cannot claim to hold more than fits."""

    def __init__(self) -> None:
        self.left = MOST_INDICES

    def take(self, name: str, shape: Sequence[int]) -> int:
        """The number of values of ``shape``.

        Raises:
            Unreadable: no array has this shape, or the file holds too many values.
        """
        plain = len(shape) <= MOST_DIMENSIONS and all(type(each) is int and 0 <= each <= MOST_INDICES for each in shape)
        count = prod(shape) if plain else MOST_INDICES + 1
        self.left -= count
        if self.left < 0:
            raise Unreadable(
                f"{name} makes more than {MOST_INDICES:,} values: keep one batch and head where all are alike"
            )
        return count
