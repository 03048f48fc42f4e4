"""Stand-ins inside flash-attn-4 for the length of one call, seen by the calling thread alone, and always taken away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with its arguments, in the order in which the entry launches them."""

    cache: Any
    key: Any
    arguments: tuple[Any, ...]
    fresh: bool  # compiled just now

    def kernel(self) -> Callable[..., Any]:
        """As it comes from disk, also if it was compiled just now: one kind of call is measured, the thinner one."""
        if self.fresh:
            compiled = self.cache.cache.pop(self.key, None)
            if self.key not in self.cache:  # it could not be written: a full disk
                self.cache.cache[self.key] = compiled
        kernel: Callable[..., Any] = self.cache[self.key]
        return kernel


@dataclass
class Recorder:
    """Stands in for one of the kernel caches: notes kernels and arguments instead of launching."""

    cache: Any
    more_key: tuple[Any, ...]  # what specialises the kernel, and is missing in flash-attn-4's own key
    launches: list[Launch]  # shared by the recorders of one call
    compiled: dict[Any, bool] = field(default_factory=dict)  # by key: False if it was in memory or on disk
    _thread: int = field(default_factory=threading.get_ident)

    def __contains__(self, key: Any) -> bool:
        if self._elsewhere:
            return key in self.cache
        self.compiled.setdefault(self._whole(key), False)
        return self._whole(key) in self.cache

    def __setitem__(self, key: Any, kernel: Any) -> None:
        if self._elsewhere:
            self.cache[key] = kernel
            return
        self.compiled[self._whole(key)] = True
        self.cache[self._whole(key)] = kernel

    def __getitem__(self, key: Any) -> Callable[..., Any]:
        if self._elsewhere:
            kernel: Callable[..., Any] = self.cache[key]
            return kernel
        return partial(self._record, self._whole(key))

    @property
    def object_files(self) -> list[Path]:
        """Where the kernels that were asked for are on disk."""
        return [Path(self.cache.cache_path) / f"{self.cache._key_to_hash(key)}.o" for key in self.compiled]  # noqa: SLF001

    @property
    def _elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    def _whole(self, key: Any) -> Any:
        return (*key, *self.more_key) if self.more_key else key

    def _record(self, key: Any, *arguments: Any) -> None:
        self.launches.append(Launch(self.cache, key, arguments, self.compiled[key]))


@contextmanager
def recording(
    owners: Sequence[Any], more_key: tuple[Any, ...] = (), launches: list[Launch] | None = None
) -> Iterator[list[Recorder]]:
    """Record what is launched from the caches of ``owners``, which are functions with a ``compile_cache``.

    With ``launches`` at the end of those, so that several recordings of one call keep one order.
    """
    launches = [] if launches is None else launches
    with _ONE_AT_A_TIME:
        real = [owner.compile_cache for owner in owners]
        recorders = [Recorder(cache, more_key, launches) for cache in real]
        for owner, recorder in zip(owners, recorders, strict=True):
            owner.compile_cache = recorder
        try:
            yield recorders
        finally:
            for owner, cache in zip(owners, real, strict=True):
                owner.compile_cache = cache


@contextmanager
def answering(module: Any, name: str, answer: Any) -> Iterator[None]:
    """Let the function ``name`` of ``module`` return ``answer``, to this thread."""
    with _ONE_AT_A_TIME:
        real, thread = getattr(module, name), threading.get_ident()

        def stand_in(*arguments: Any, **named: Any) -> Any:
            return answer if threading.get_ident() == thread else real(*arguments, **named)

        setattr(module, name, stand_in)
        try:
            yield
        finally:
            setattr(module, name, real)
