"""A first profile: what the user says is kept, what is left open is chosen so that the whole is valid."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from attnctl.errors import UsageError
from attnctl.profile.load import load
from attnctl.profile.problems import cases
from attnctl.rules.check import Report, check_loaded
from attnctl_kernels.contract import Dtype, Family, PassName, Pattern
from attnctl_kernels.families import get_family

PATTERNS = tuple(name for name in get_args(Pattern) if name != "blocks")  # those rows are better written by hand
_MOST_DRAFTS = 500
_ARCHES = ("sm_90", "sm_100")  # tried first
_SHARES = {"history_len": 3, "prefix_len": 1, "document_len": 1, "window": 1}  # quarters of the sequence
_FACTS = {
    "history_candidate": "history_len",
    "prefix_lm": "prefix_len",
    "document": "document_len",
    "sliding_window": "window",
}
_MEANINGS = {
    "dense": "every query sees every key",
    "causal": "a query sees itself and the keys before it",
    "sliding_window": "itself and the window - 1 keys before it",
    "document": "the keys of its own document",
    "prefix_lm": "the prefix, and the keys before it",
    "history_candidate": "the history; a candidate also sees itself, no other candidate",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says; None or empty leaves it open."""

    family: str
    arch: str | None = None
    passes: tuple[PassName, ...] = ("forward",)
    batch_size: int | None = None
    seq_lens: tuple[int, ...] = ()
    num_heads_q: int | None = None
    num_heads_kv: int | None = None
    head_dim: int | None = None
    dtype: str | None = None
    mask: str | None = None  # "causal", or "sliding_window:window=1024"


@dataclass(frozen=True, slots=True)
class Draft:
    text: str
    report: Report

    @property
    def rank(self) -> tuple[int, int]:
        return self.report.errors, self.report.warnings


def compose(wishes: Wishes) -> Draft:
    """The first draft without findings, or the one with the fewest: it may have errors.

    Raises:
        UsageError: there is no such family, mask or fact of a mask.
    """
    try:
        family = get_family(wishes.family)
    except KeyError:
        raise UsageError(f"--family {wishes.family}: no such family", "attnctl doctor lists them") from None
    best: Draft | None = None
    with tempfile.TemporaryDirectory(prefix="attnctl-init-") as folder:
        for choice in itertools.islice(_choices(family, wishes), _MOST_DRAFTS):
            draft = _draft(Path(folder) / "profile.yaml", family, wishes, choice)
            if best is None or draft.rank < best.rank:
                best = draft
            if draft.rank == (0, 0):
                break
    assert best is not None
    return best


def mask_facts(text: str, seq_len: int) -> dict[str, Any]:
    """``sliding_window:window=1024`` as a profile's ``mask``; a fact that is not given is a share of the sequence.

    Raises:
        UsageError: it is no such text.
    """
    pattern, _, rest = text.partition(":")
    if pattern not in PATTERNS:
        raise UsageError(f"--mask {text}: no such pattern", f"known: {', '.join(PATTERNS)}")
    fact = _FACTS.get(pattern)
    mask: dict[str, Any] = {"pattern": pattern}
    if fact:
        mask[fact] = max(1, seq_len * _SHARES[fact] // 4)
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        if name == "causal" and pattern == "document" and value in {"true", "false"}:
            mask[name] = value == "true"
        elif name == fact and value.isdecimal() and int(value):
            mask[name] = int(value)
        else:
            example = f"{pattern}:{fact}=1024" if fact else pattern
            raise UsageError(f"--mask {text}: {part!r} is no fact of {pattern}", f"for example --mask {example}")
    return mask


def _choices(family: Family, wishes: Wishes) -> Iterator[dict[str, Any]]:
    """Ways to fill in what is open, the most usual first."""
    arches = sorted(family.arches, key=lambda arch: _ARCHES.index(arch) if arch in _ARCHES else len(_ARCHES))
    open_fields: dict[str, Sequence[Any]] = {
        "with_config": (True, False),
        "version": tuple(reversed(family.versions)),
        "mask": (wishes.mask,) if wishes.mask else ("history_candidate", "causal", "dense", "document"),
        "dtype": (wishes.dtype,) if wishes.dtype else ("bfloat16", "float16", "float32"),
        "arch": (wishes.arch,) if wishes.arch else tuple(arches) or (None,),
        "head_dim": (wishes.head_dim,) if wishes.head_dim else (128, 64),
        "seq_lens": (wishes.seq_lens,) if wishes.seq_lens else (((4096,), (512,)) if arches else ((512,), (256,))),
        "sparse_block": (None, (128, 128)),
    }
    for values in itertools.product(*reversed(open_fields.values())):
        yield dict(zip(reversed(open_fields), values, strict=True))


def _draft(path: Path, family: Family, wishes: Wishes, choice: Mapping[str, Any]) -> Draft:
    """Written, loaded, and written once more with the config that the kernel would choose."""
    path.write_text(_text(family, wishes, choice, {}), encoding="utf-8")
    loaded = load(path)
    report = check_loaded(loaded)
    if loaded.profile is not None and not report.errors and choice["with_config"]:
        configs = {case.pass_name: dict(case.config) for case in cases(loaded.profile)}
        path.write_text(_text(family, wishes, choice, configs), encoding="utf-8")
        report = check_loaded(load(path))
    return Draft(path.read_text(encoding="utf-8"), report)


def _text(
    family: Family, wishes: Wishes, choice: Mapping[str, Any], configs: Mapping[PassName, Mapping[str, Any]]
) -> str:
    tuning = "attnctl tune FILE       which block sizes are fastest on this device?"
    if not family.tunable:
        tuning = f"{family.name} has rules only: it can be validated, not tuned."
    lines = [
        "# Written by `attnctl init`; yours to edit.",
        "#   attnctl validate FILE   can it run at these lengths? Needs no GPU.",
        f"#   {tuning}",
        *_target(family, wishes, choice),
        "",
        *_problem(wishes, choice),
        "",
        *_mask(choice),
        "",
        *_sparse_block(choice["sparse_block"]),
        *_config(family, configs),
    ]
    if family.tunable:
        lines += ["", "gate:", _line("  max_regression: 3%", "what `attnctl gate` lets pass")]
    return "\n".join(lines) + "\n"


def _target(family: Family, wishes: Wishes, choice: Mapping[str, Any]) -> Iterator[str]:
    yield _line("schema: 1", "the version of this file format")
    yield _line(f"family: {family.name}", family.title)
    yield _line(f'version: "{choice["version"]}"', _known("whose rules apply", family.versions))
    if choice["arch"]:
        yield _line(f"arch: {choice['arch']}", _known("what it is compiled for", family.arches))
    yield _line(f"passes: [{', '.join(wishes.passes)}]", _known("each has a config", family.passes))


def _problem(wishes: Wishes, choice: Mapping[str, Any]) -> Iterator[str]:
    lengths: tuple[int, ...] = choice["seq_lens"]
    yield _line("problem:", "one attention call")
    yield _line(f"  batch_size: {wishes.batch_size or 2}")
    listed = lengths[0] if len(lengths) == 1 else list(lengths)
    yield _line(f"  seq_len: {listed}", "queries and keys; a list makes one problem each")
    yield _line(f"  num_heads_q: {wishes.num_heads_q or 16}")
    if wishes.num_heads_kv:
        yield _line(f"  num_heads_kv: {wishes.num_heads_kv}", "query heads share them in groups")
    yield _line(f"  head_dim: {choice['head_dim']}")
    yield _line(f"  dtype: {choice['dtype']}", _known("of Q, K and V", get_args(Dtype)))


def _mask(choice: Mapping[str, Any]) -> Iterator[str]:
    facts = mask_facts(choice["mask"], min(choice["seq_lens"]))
    pattern = facts.pop("pattern")
    yield _line("mask:", _known("who sees whom", PATTERNS))
    yield _line(f"  pattern: {pattern}", _MEANINGS[pattern])
    yield from (_line(f"  {name}: {_yaml(value)}") for name, value in facts.items())


def _sparse_block(block: tuple[int, int] | None) -> Iterator[str]:
    if block is not None:
        yield _line(f"sparse_block: {list(block)}", "queries and keys per block of the mask")
        yield ""


def _config(family: Family, configs: Mapping[PassName, Mapping[str, Any]]) -> Iterator[str]:
    written = {name: config for name, config in configs.items() if config}
    if not written:
        yield "# config: left out, so the kernel's own choice is checked"
        return
    yield _line("config:", "what is checked, and what `tune` has to beat; this is the kernel's own choice")
    if family.flat_config:
        merged = {key: value for config in written.values() for key, value in config.items()}
        yield from (_line(f"  {name}: {_yaml(value)}") for name, value in merged.items())
        return
    for pass_name, config in written.items():
        yield _line(f"  {pass_name}:")
        yield from (_line(f"    {name}: {_yaml(value)}") for name, value in config.items())


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _known(meaning: str, values: Sequence[str]) -> str:
    return f"{meaning}; known: {', '.join(values)}" if len(values) > 1 else meaning


def _line(text: str, comment: str = "") -> str:
    return f"{text.ljust(29)} # {comment}" if comment else text
