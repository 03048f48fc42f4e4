"""Broken inputs from good ones: bytes, lines, numbers and pieces of other inputs, by a seeded generator."""

import random
import re

NUMBERS = ["-1", "0", "1", "2", "7", "63", "64", "65", "96", "128", "1000", "4096", "65536", "2147483648", "1e5"]
NUMBERS += ["9223372036854775808", "-0", "0128", "0x80", "1_024", "12:30", "3.10", "1.5", ".inf", "9" * 400, "[64]"]
YAML_TOKENS = ["{", "}", "[", "]", ": ", ":", ", ", "- ", "? ", "| ", "> ", "#", "&a ", "*a", "<<: ", "!!int ", "%"]
YAML_TOKENS += ["'", '"', "\\x", "\n", "\n  ", "\t", "---\n", "...\n", "~", "null", "yes", "off", "true", "@", "`"]
LOG_TOKENS = ["\n", "\r\n", "\x1b[31m", "\x1b]8;;", "[31m", "...", "…", "'", "`", "{", "}", "(", ")", "[", " ", "  | "]
LOG_TOKENS += ["E       ", "[rank0]: ", "ValueError: ", " [truncated]", "\\n", '\\"', "\0", "\ufeff", "│", "="]
_NUMBER = re.compile(rb"-?\d+")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")
LONGEST = 2000  # bytes: growth by splicing must end


class Mutator:
    """``tokens`` are the words of the language that the inputs are written in."""

    def __init__(self, seed: int, tokens: list[str]) -> None:
        self.random = random.Random(seed)
        self.tokens = [each.encode() for each in tokens]
        self.ways = (self.byte, self.cut, self.repeat, self.token, self.number, self.word, self.line, self.splice)

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """``data`` after a few changes, most often one; pieces may come from ``other``."""
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 5, 12))):
            data = self.random.choice(self.ways)(data, other)
        return data[:LONGEST]

    def place(self, data: bytes) -> int:
        return self.random.randrange(len(data) + 1)

    def span(self, data: bytes) -> tuple[int, int]:
        start = self.place(data)
        return start, min(len(data), start + self.random.choice((1, 2, 4, 8, 32, 200)))

    def byte(self, data: bytes, _other: bytes) -> bytes:
        start = self.place(data)
        return data[:start] + bytes([self.random.randrange(256)]) + data[start + self.random.randrange(2) :]

    def cut(self, data: bytes, _other: bytes) -> bytes:
        start, end = self.span(data)
        return data[:start] + data[end:]

    def repeat(self, data: bytes, _other: bytes) -> bytes:
        start, end = self.span(data)
        return data[:end] + data[start:end] * self.random.choice((1, 2, 3, 40)) + data[end:]

    def token(self, data: bytes, _other: bytes) -> bytes:
        start = self.place(data)
        return data[:start] + self.random.choice(self.tokens) + data[start:]

    def number(self, data: bytes, _other: bytes) -> bytes:
        return self.swap(_NUMBER, data, self.random.choice(NUMBERS).encode())

    def word(self, data: bytes, other: bytes) -> bytes:
        words = _WORD.findall(other) or [b"x"]
        return self.swap(_WORD, data, self.random.choice(words))

    def swap(self, pattern: re.Pattern[bytes], data: bytes, new: bytes) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data + new
        one = self.random.choice(found)
        return data[: one.start()] + new + data[one.end() :]

    def line(self, data: bytes, other: bytes) -> bytes:
        """A line dropped, moved, or taken from elsewhere."""
        lines = data.splitlines(keepends=True)
        kept = lines.pop(self.random.randrange(len(lines))) if lines and self.random.random() < 0.7 else b""
        foreign = other.splitlines(keepends=True)
        new = self.random.choice(foreign) if foreign and self.random.random() < 0.6 else kept
        lines.insert(self.random.randrange(len(lines) + 1), new)
        return b"".join(lines)

    def splice(self, data: bytes, other: bytes) -> bytes:
        start, end = self.span(data)
        first, last = self.span(other)
        return data[:start] + other[first:last] + data[end:]
