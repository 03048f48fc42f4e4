"""What is fed with broken inputs, and what must hold of the answer. Each target says how an answer is told from others.

An input whose answer is new joins the pool that later inputs are made of: so the search goes deeper than its seeds.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fuzz_mutate import LOG_TOKENS, YAML_TOKENS

from attnctl.errors import UsageError
from attnctl.layouts import read as layouts
from attnctl.profile.load import load
from attnctl.report import get_renderer, renderer_names
from attnctl.report._messages import write_json, write_text
from attnctl.rules.check import check_loaded
from attnctl.rules.messages import find_messages
from attnctl.rules.registry import every_rule

TESTS = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "corpus"  # what once broke something, and what no mutation of the rest comes to
BREAK = re.compile("\r\n|\r|\n")
RENDERERS = [(name, get_renderer(name)) for name in renderer_names()]
LAYOUT_PROFILE = """\
family: fa4
arch: sm_90
passes: [forward, backward]
problem: {seq_len: 256, num_heads_q: 2, head_dim: 128}
mask: {pattern: causal}
sparse_block: [128, 128]
"""


@dataclass(frozen=True)
class Target:
    seeds: Callable[[], Iterator[bytes]]
    run: Callable[[bytes, Path], str]  # the answer in short; raises where it is wrong
    tokens: list[str]


def kept(kind: str) -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted((KEPT / kind).glob("*")))  # git keeps no empty folder


def profiles() -> Iterator[bytes]:
    yield from kept("profile")
    for path in sorted((TESTS / "rules" / "fixtures").glob("*/*.yaml")):
        yield path.read_bytes()


def check(data: bytes, folder: Path) -> str:
    path = folder / "p.yaml"
    path.write_bytes(data)
    report = check_loaded(load(path))
    lines = BREAK.split(data.decode("utf-8-sig", "replace"))
    for each in report.findings:
        assert 1 <= each.line <= len(lines), (each.line, len(lines))
        assert 1 <= each.column <= len(lines[each.line - 1]) + 1, (each.line, each.column)
        assert each.message
        assert each.fix
    if report.profile is None:
        assert report.errors
    codes = " ".join(sorted({each.code for each in report.findings}))
    render(report, sum(data) % 32)
    return codes


def render(report, number: int) -> None:
    """In one of the formats, now and then: it takes longer than the check."""
    if number < len(RENDERERS):
        name, renderer = RENDERERS[number]
        out = io.StringIO()
        renderer.render([report], out)
        if name in ("json", "sarif"):
            json.loads(out.getvalue())


def messages() -> Iterator[bytes]:
    yield from kept("message")
    for text in sorted({text for rule in every_rule() for text in rule.upstream}):
        yield text.replace("…", "\n").replace("{}", "128").encode()
    for path in sorted((TESTS / "rules" / "logs").glob("*.log")):
        yield from (part.encode() for part in path.read_text(encoding="utf-8").split("\n\n")[:4])


def explain(data: bytes, _folder: Path) -> str:
    text = data.decode("utf-8", "replace")
    found = find_messages([text])
    for each in found:
        assert each.rules
        assert 1 <= each.line <= text.count("\n") + 1
        assert len(each.values) <= len(each.names)
    if found:
        write_text(found, io.StringIO(), width=80)
        out = io.StringIO()
        write_json(found, out)
        json.loads(out.getvalue())
    return " ".join(f"{each.rules[0].code}{'' if each.complete else '+'}" for each in found[:4])


def arrays() -> Iterator[bytes]:
    """The first byte says which form the rest has."""
    yield from kept("layout")
    counts = np.array([[[1, 2]]], np.int32)
    indices = np.array([[[[0, 0], [0, 1]]]], np.int32)
    named = {"mask_block_cnt": counts, "mask_block_idx": indices}
    for full in ({}, {"full_block_cnt": counts * 0, "full_block_idx": indices * 0}):
        both = named | full
        both |= {f"bwd_{name}": value for name, value in both.items()}
        for save in (np.savez, np.savez_compressed):
            out = io.BytesIO()
            save(out, **both)
            yield b"0" + out.getvalue()
        yield b"1" + safetensors(both)
        yield b"2" + json.dumps({name: value.tolist() for name, value in both.items()}).encode()
    yield from (b"3" + path.read_bytes() for path in sorted((KEPT / "torch").iterdir()))


def safetensors(named: dict[str, np.ndarray]) -> bytes:
    header, data = {}, b""
    for name, value in named.items():
        end = len(data) + value.nbytes
        header[name] = {"dtype": "I32", "shape": list(value.shape), "data_offsets": [len(data), end]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


SUFFIXES = (".npz", ".safetensors", ".json", ".pt")


def read_layout(data: bytes, folder: Path) -> str:
    layout = folder / f"layout{SUFFIXES[data[0] % len(SUFFIXES) if data else 0]}"
    layout.write_bytes(data[1:])
    profile = folder / "p.yaml"
    profile.write_text(LAYOUT_PROFILE, encoding="utf-8")
    layouts._read.cache_clear()  # the clock may be too coarse to tell two files apart
    report = check_loaded(load(profile, layout=layout))
    assert report.profile is not None
    for each in report.findings:
        assert each.line >= 1
        assert each.message
        assert each.fix
    return " ".join(sorted({f"{each.code}{each.message[:40]}" for each in report.findings}))


TARGETS = {
    "profile": Target(profiles, check, YAML_TOKENS),
    "message": Target(messages, explain, LOG_TOKENS),
    "layout": Target(arrays, read_layout, ["[", "]", "{", "}", ":", ",", '"', "-1", "PK", "\0", "\0\0\0\0", "\x7f"]),
}
EXPECTED = (UsageError,)  # what the command line turns into a message
