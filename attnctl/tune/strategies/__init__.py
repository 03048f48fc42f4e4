"""Search strategies: one file each, found by walking this package.

A strategy file defines ``STRATEGY``, a dataclass whose fields are its options. ``start`` is called once per task and
returns a function that is asked for the next candidate whenever there is room for one. It is told what was tried
and what is on its way, and remembers nothing that these do not say: an interrupted sweep goes on as if it had not been.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from attnctl.errors import AttnctlError, UsageError
from attnctl.gpu.protocol import Result
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate, join_words


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is wanted. ``wait``: for what is still being compiled; else that is left too."""

    reason: str
    wait: bool = True


# Both arguments go by Candidate.key: what became of a candidate, and which are given out and not back yet.
Choose = Callable[[Mapping[str, Result], Collection[str]], Candidate | Stop]


class Strategy(Protocol):
    lookahead: ClassVar[int | None]  # candidates to queue beyond those that compile; None: as many as there are

    def start(self, space: Space) -> Choose:
        """What to try next in ``space``. Default and incumbent are tried whatever it says."""

    def most(self, count: int) -> int:
        """How many of ``count`` candidates it tries at most, default and incumbent included."""


_REQUIRED = ("lookahead", "start", "most")


def strategy_names() -> tuple[str, ...]:
    """Names of all strategies, sorted. Imports none of them."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__)))


def get_strategy(text: str) -> Strategy:
    """The strategy that ``text`` asks for: a name, or a name with options, as in ``random:samples=20,seed=1``.

    Raises:
        UsageError: there is no such strategy or option, or the option's value has the wrong type.
    """
    name, _, options = text.partition(":")
    if name not in strategy_names():
        raise UsageError(f"there is no strategy {name!r}", f"use {join_words(strategy_names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    factory: Any = getattr(module, "STRATEGY", None)
    if not all(hasattr(factory, each) for each in ("__dataclass_fields__", *_REQUIRED)):
        needed = f"a dataclass STRATEGY with {join_words(_REQUIRED, 'and')}"
        raise AttnctlError(f"{module.__file__}: defines no strategy", f"it needs {needed}; CONTRIBUTING.md shows one")
    fields = {field.name: field for field in dataclasses.fields(factory)}
    chosen: dict[str, int] = {}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        if key not in fields:
            known = f"it has {join_words(list(fields), 'and')}" if fields else "it has none"
            raise UsageError(f"strategy {name!r} has no option {key!r}", known)
        try:
            chosen[key] = int(value)
        except ValueError:
            chosen[key] = -1
        if chosen[key] < 0:
            example = f"{name}:{key}={fields[key].default}"
            raise UsageError(
                f"strategy {name!r}: {key} must be a whole number from 0 up, not {value!r}", f"as in {example}"
            )
    strategy: Strategy = factory(**chosen)
    return strategy
