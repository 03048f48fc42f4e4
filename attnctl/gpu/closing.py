"""What owns processes or devices, and gives them back at the end of a ``with`` block."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Protocol, Self


class Closing(Protocol):
    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
