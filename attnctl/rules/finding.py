"""A finding: one broken rule at one place of one file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from attnctl_kernels.rule import Fix, Severity


@dataclass(frozen=True, slots=True)
class Edit:
    """Put ``text`` in the place of what stands from ``start`` up to ``end``, which are equal where nothing goes."""

    start: tuple[int, int]  # line and column, from 1
    end: tuple[int, int]
    text: str


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
    edits: tuple[Edit | None, ...] = ()  # one per fix: what it changes in the text of the file, where that is one edit
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
            "fixes": [
                {"field": fix.field, "value": fix.value, "price": fix.price, "edit": _edit_as_dict(edit)}
                for fix, edit in zip_longest(self.fixes, self.edits)
            ],
            "problem": self.problem,
            "lengths": list(self.lengths),
            "pass": self.pass_name,
        }


def _edit_as_dict(edit: Edit | None) -> dict[str, Any] | None:
    if edit is None:
        return None
    (line, column), (end_line, end_column) = edit.start, edit.end
    return {"line": line, "column": column, "end_line": end_line, "end_column": end_column, "text": edit.text}
