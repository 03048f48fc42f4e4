"""A finding: one broken rule at one place of one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnctl_kernels.rule import Fix, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """What `validate` reports, in every format. ``line`` and ``column`` count from 1; 0 means the whole file."""

    code: str
    name: str
    severity: Severity
    path: str
    line: int
    column: int
    field: str  # dotted path as written in the file: problem.seq_len[1], config.forward.tile_m
    message: str
    why: str = ""
    fix: str = ""  # one sentence, without the leading "Fix:"
    fixes: tuple[Fix, ...] = ()
    problem: str = ""  # slug of the problem, where the profile has several and this is about one
    lengths: tuple[str, ...] = ()  # the lengths it is about, where that is several problems and not all
    pass_name: str = ""  # where it is about one pass

    def as_dict(self) -> dict[str, Any]:
        """The stable JSON form."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": str(self.severity),
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "field": self.field,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
            "fixes": [{"field": fix.field, "value": fix.value, "price": fix.price} for fix in self.fixes],
            "problem": self.problem,
            "lengths": list(self.lengths),
            "pass": self.pass_name,
        }
