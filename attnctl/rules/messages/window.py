"""A piece of a log without what terminals, loggers and test runners put around a message."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]{0,2000}+(?:\x07|\x1b\\)|[@-Z\\^_])")
_BARE_COLOUR = re.compile(r"\[[0-9;]{1,16}+m")  # what is left of an escape after copy and paste
_ORNAMENT = re.compile("[\u2018\u2019\u201c\u201d\u2500-\u257f]")  # quotes, and the boxes that rich draws
SILENT = "{}\"'`|>"  # f-string braces, quotes and margins come and go with the way a message is printed
_RUN = re.compile(rf"[^\s{re.escape(SILENT)}]++")

MARGIN = 200  # characters around a match that are looked at
EXCERPT = 1000

_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_PREFIXES = (
    r"\[?\d{4}-\d\d-\d\d[T ,]\d\d:\d\d:\d\d(?:[.,]\d{1,9}+)?(?:Z|[+-]\d\d:?\d\d)?\]?",  # date and time
    r"\[?(?:\d\d[-/]\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9}+)?\]?",
    r"\[(?:rank|default|node|worker|gpu)[ :=]?\d{1,6}+\]:?",  # torch, torchrun
    r"\[\d{1,6}+\]:",
    r"\[\d{1,6}+,\d{1,6}+\]<std(?:out|err)>:?",  # mpirun
    r"\d{1,6}+:(?=[ \t])",  # srun --label
    r"\([\w.:/ =,-]{0,80}?pid=\d++[^()\n]{0,80}+\)",  # ray
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9}+ ++\d++ [\w./-]++:\d++\]",  # glog
    r"\[[\w./-]{1,80}+:\d{1,6}+\]",  # [file.py:12]
    rf"{_LEVEL}:[\w.]{{1,60}}+:",  # logging.basicConfig
    rf"\[?{_LEVEL}\]?:?(?=[\s\[(])",
    r"std(?:out|err) [FP](?=[ \t])",  # kubernetes
    r"[\w.-]{1,60}+[ \t]++\|(?=[ \t])",  # docker compose
    r"E(?=[ \t]{2})",  # pytest
    r"-(?=[ \t])",  # the dashes of a logging format
)
_PREFIX = re.compile(rf"\n(?:[ \t]*+(?:{'|'.join(_PREFIXES)}))++")


class _Runs(NamedTuple):
    """Where pieces of the text begin, in ``squeezed`` and in ``plain``."""

    squeezed: list[int]
    plain: list[int]

    def add(self, squeezed: int, plain: int) -> None:
        self.squeezed.append(squeezed)
        self.plain.append(plain)

    def at(self, position: int) -> int:
        """The number of the piece that holds the character at ``position`` of ``squeezed``."""
        return bisect_right(self.squeezed, position) - 1


class Window:
    """``squeezed`` is for matching: without white space, quotes and braces. ``plain`` is for people.

    Positions count characters of ``squeezed``; ``line`` is that of the first character in the whole text.
    """

    def __init__(self, raw: str, line: int = 1) -> None:
        self.line = line
        self.plain = _undress(raw)
        self.squeezed = squeeze(self.plain)
        self._latest = (-1, _Runs([], []))

    @cached_property
    def _lines(self) -> _Runs:
        """Where each line begins; cheap to find, and enough for most positions."""
        runs = _Runs([], [])
        squeezed = plain = 0
        for line in self.plain.split("\n"):
            runs.add(squeezed, plain)
            squeezed += len(squeeze(line))
            plain += len(line) + 1
        return runs

    def _runs(self, line: int) -> _Runs:
        """Where each run of kept characters of one line begins. Of the latest line they are kept."""
        if self._latest[0] != line:
            runs = _Runs([], [])
            squeezed, begin = self._lines.squeezed[line], self._lines.plain[line]
            end = self.plain.find("\n", begin)
            for run in _RUN.finditer(self.plain, begin, end if end >= 0 else len(self.plain)):
                runs.add(squeezed, run.start())
                squeezed += run.end() - run.start()
            self._latest = (line, runs)
        return self._latest[1]

    def place(self, position: int) -> int:
        """Where the character at ``position`` stands in ``plain``."""
        if position >= len(self.squeezed):
            return len(self.plain)
        runs = self._runs(self._lines.at(position))
        run = runs.at(position)
        return runs.plain[run] + position - runs.squeezed[run]

    def before(self, position: int) -> str:
        """What stands before the character at ``position`` on its line."""
        place = self.place(position)
        return self.plain[max(0, place - MARGIN) : place].rpartition("\n")[2]

    def after(self, position: int) -> str:
        """What stands behind the character before ``position`` on its line."""
        return self.following(position).partition("\n")[0]

    def following(self, position: int) -> str:
        """The same, also on the next lines."""
        place = self.place(position - 1) + 1
        return self.plain[place : place + MARGIN]

    def line_of(self, position: int) -> int:
        return self.line + self.plain.count("\n", 0, self.place(position))

    def excerpt(self, begin: int, end: int) -> str:
        """The lines that hold the characters from ``begin`` to ``end``, as one; of long lines what is near."""
        first, last = self.place(begin), self.place(end - 1) + 1
        head = self.plain[max(0, first - MARGIN) : first].rpartition("\n")[2]
        tail = self.plain[last : last + MARGIN].partition("\n")[0]
        return " ".join((head + self.plain[first : min(last, first + EXCERPT)] + tail).split())


def squeeze(text: str) -> str:
    """The characters that count when messages are compared."""
    for silent in SILENT:
        text = text.replace(silent, " ")
    return "".join(text.split())


def _undress(raw: str) -> str:
    """Line for line the same text, without colours and prefixes."""
    if "\x1b" in raw:
        raw = _ESCAPE.sub("", raw)
    raw = _BARE_COLOUR.sub("", raw.replace("^[[", "["))
    if "\\" in raw:  # JSON logs and repr() spell line breaks out
        raw = raw.replace("\\n", "  ").replace("\\t", "  ").replace('\\"', '"').replace("\\'", "'")
    if not raw.isascii():
        raw = _ORNAMENT.sub(" ", raw)
    return _PREFIX.sub("\n", "\n" + raw)[1:]
