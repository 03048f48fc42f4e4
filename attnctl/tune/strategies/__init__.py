"""Search strategies: one file each, found by walking this package.

A strategy file defines ``STRATEGY``, a dataclass whose fields are its options and whose ``propose`` yields the
candidates to measure, in order. ``observed`` grows while the sweep runs, so that a guided strategy can look at it
between two yields. Compilers are kept busy by asking ahead: ``lookahead`` says by how many candidates.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from attnctl.errors import UsageError
from attnctl.gpu.protocol import Result
from attnctl_kernels.contract import Candidate, join_words


class Strategy(Protocol):
    lookahead: ClassVar[int | None]  # None: as far as there is anything to propose

    def propose(self, candidates: Sequence[Candidate], observed: Mapping[str, Result]) -> Iterator[Candidate]:
        """Yield candidates to measure. ``observed`` maps :attr:`Candidate.key` to what was measured so far."""


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
    factory: Any = importlib.import_module(f"{__name__}.{name}").STRATEGY
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
            example = f"{name}:{key}={fields[key].default}"
            raise UsageError(
                f"strategy {name!r}: {key} must be a whole number, not {value!r}", f"as in {example}"
            ) from None
    strategy: Strategy = factory(**chosen)
    return strategy
