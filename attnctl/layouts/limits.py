"""How much of a layout file is read, and how its readers say that it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

MOST_INDICES = 1 << 28  # in all arrays of a file together
MOST_HEADER_BYTES = 1 << 20
MOST_JSON_BYTES = 64 << 20
MOST_DIMENSIONS = 8


class Unreadable(Exception):
    """Why a file is not read: one clause, with what to do where that is known."""


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
