"""Faults of the file itself, found while it is read: codes and pages like those of rules, in the same registry.

A fault of form is one function: its docstring is the page that ``attnctl explain`` prints, its parameters are the
facts, and it returns the message and the sentence that says how to mend it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnctl.rules.finding import Finding
from attnctl_kernels.rule import Severity

Said = tuple[str, str]  # message, fix


@dataclass(frozen=True, slots=True)
class FormRule:
    """Like :class:`attnctl_kernels.rule.Rule`, for what is seen before there is a case to check."""

    code: str
    name: str
    why: str
    say: Callable[..., Said]
    page: str
    severity: Severity = Severity.ERROR
    upstream: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def finding(self, path: str, place: tuple[int, int], field: str, *facts: object) -> Finding:
        message, fix = self.say(*facts)
        line, column = place
        return Finding(self.code, self.name, self.severity, path, line, column, field, message, self.why, fix)


def form(code: str, *, why: str, severity: Severity = Severity.ERROR) -> Callable[[Callable[..., Said]], FormRule]:
    """Make a function that words a fault a :class:`FormRule`."""

    def wrap(say: Callable[..., Said]) -> FormRule:
        return FormRule(code, say.__name__.replace("_", "-"), why, say, say.__doc__ or "", severity)

    return wrap
