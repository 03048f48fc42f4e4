"""A piece of a log without what terminals, loggers and test runners put around a message."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]{0,2000}+(?:\x07|\x1b\\)|[@-Z\\^_])")
_BARE_COLOUR = re.compile(r"(?:\^\[)?\[[0-9;]{1,16}+m")  # what is left of an escape after copy and paste
_ORNAMENT = re.compile("[\u2018\u2019\u201c\u201d\u2500-\u257f]")  # quotes, and the boxes that rich draws
_SILENT = "{}\"'`|>"  # f-string braces, quotes and margins come and go with the way a message is printed
_RUN = re.compile(rf"[^\s{re.escape(_SILENT)}]++")

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


class Window:
    """``squeezed`` is for matching: without white space, quotes and braces. ``plain`` is for people.

    Positions count characters of ``squeezed``; ``line`` is that of the first character in the whole text.
    """

    def __init__(self, raw: str, line: int = 1) -> None:
        self.line = line
        self.plain = _undress(raw)
        self.squeezed = squeeze(self.plain)

    @cached_property
    def _runs(self) -> tuple[list[int], list[int]]:
        """Where each run of kept characters begins, in ``squeezed`` and in ``plain``."""
        squeezed, plain, total = [], [], 0
        for run in _RUN.finditer(self.plain):
            squeezed.append(total)
            plain.append(run.start())
            total += run.end() - run.start()
        return squeezed, plain

    def place(self, position: int) -> int:
        """Where the character at ``position`` stands in ``plain``."""
        if position >= len(self.squeezed):
            return len(self.plain)
        squeezed, plain = self._runs
        run = bisect_right(squeezed, position) - 1
        return plain[run] + position - squeezed[run]

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
    for silent in _SILENT:
        text = text.replace(silent, " ")
    return "".join(text.split())


def _undress(raw: str) -> str:
    """Line for line the same text, without colours and prefixes."""
    if "\x1b" in raw:
        raw = _ESCAPE.sub("", raw)
    raw = _BARE_COLOUR.sub("", raw)
    if "\\" in raw:  # JSON logs and repr() spell line breaks out
        raw = raw.replace("\\n", "  ").replace("\\t", "  ").replace('\\"', '"').replace("\\'", "'")
    if not raw.isascii():
        raw = _ORNAMENT.sub(" ", raw)
    return _PREFIX.sub("\n", "\n" + raw)[1:]
