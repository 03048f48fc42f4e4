"""The numbers of a message: what they are, and values that would work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from attnctl.rules.messages.scan import Match
from attnctl_kernels.contract import join_words
from attnctl_kernels.rule import nearest_multiples

_MULTIPLE = re.compile(r"(?:multiples? of|divisible by(?: and)?) ")
_END = re.compile(r"[;,(]| and | for | to ")  # of the divisor
_FACTOR = re.compile(r"\{\}|(?<![\w=.])[0-9]+(?![\w=.])")
_NUMBER = re.compile(r"[0-9]{1,18}")

# What the kernels call a quantity -> the field of a profile.
FIELDS = {
    "q_seq_len": "problem.seqlen_q",
    "seqlen_q": "problem.seqlen_q",
    "kv_seq_len": "problem.seqlen_k",
    "seq_len": "problem.seq_len",
    "head_dim": "problem.head_dim",
    "num_q_heads": "problem.num_heads_q",
    "num_kv_heads": "problem.num_heads_kv",
    "sparse_block_size[0]": "sparse_block[0]",
    "sparse_block_size[1]": "sparse_block[1]",
    "sparse_block_size_q": "sparse_block[0]",
    "BLOCK_SIZE_KV": "sparse_block[1]",
    "tile_m": "config.tile_m",
    "tile_n": "config.tile_n",
    "q_subtile_factor": "config.backward.subtile_factor",
    "subtile_factor": "config.backward.subtile_factor",
    "compute_wgs": "config.compute_wgs_bwd",
    "num_m_blocks": "layout.num_blocks",
}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a message. ``name`` is the kernel's, ``field`` the profile's; both empty where not known."""

    name: str
    text: str
    field: str = ""

    @property
    def number(self) -> int | None:
        return int(self.text) if re.fullmatch(r"-?[0-9]{1,18}", self.text) else None


def values_of(match: Match) -> list[Value]:
    """The values that the message gave, in its order."""
    named = zip(match.names, match.values, strict=False)  # the end may be missing
    return [Value(name, text, _field(name)) for name, text in named if text]


def _field(name: str) -> str:
    if name.startswith("config."):
        return name
    return FIELDS.get(name, f"config.{name.removeprefix('self.')}" if name.startswith("self.") else "")


def nearest_values(match: Match) -> str:
    """For ``X must be a multiple of Y * Z``: ``1000 -> 768 or 1024, multiples of 128 * 2 = 256``; otherwise empty."""
    found = _MULTIPLE.search(match.message)
    if not found:
        return ""
    subject, (divisor, rest) = match.message[: found.start()], _divide(match.message[found.end() :])
    texts = iter(match.values)
    before = [next(texts, "") for _ in range(subject.count("{}"))]
    factors = [next(texts, "") if each == "{}" else each for each in _FACTOR.findall(divisor)]
    after = [next(texts, "") for _ in range(rest.count("{}"))]
    if not factors or not all(each.isdecimal() and int(each) for each in factors):
        return ""
    wrong = [int(each) for each in _NUMBER.findall((before or after or [""])[-1])]
    return _sentence(wrong, [int(each) for each in factors])


def _divide(text: str) -> tuple[str, str]:
    end = _END.search(text)
    return (text[: end.start()], text[end.start() :]) if end else (text, "")


def _sentence(values: list[int], factors: list[int]) -> str:
    divisor = prod(factors)
    of = f"{' * '.join(map(str, factors))} = {divisor}" if len(factors) > 1 else str(divisor)
    if not values:
        return f"the multiples of {of} are {divisor}, {2 * divisor}, {3 * divisor}, ..."
    near = {value: nearest_multiples(value, divisor) for value in values}
    steps = [f"{value} -> {join_words(multiples)}" for value, multiples in near.items() if multiples]
    return f"{'; '.join(steps)} (multiples of {of})" if steps else ""
