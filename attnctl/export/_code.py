"""Python as text: headings, calls and tables keyed by ``(seqlen_q, seqlen_k)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attnctl.export import Export
from attnctl.profile.decision import Decision, Source, lengths_of

_MAX_LINE = 100
_SOURCES = {
    Source.PROFILE: "the profile's own config, not tuned",
    Source.DEFAULT: "the kernel's default, not tuned",
}


def heading(export: Export) -> Iterator[str]:
    """What this is, and where each config comes from."""
    first = export.first
    version = f" {first.task.version}" if first.task.version else ""
    device = first.device_name or "an unknown device"
    yield f"# {first.task.family}{version} on {device}: written by attnctl export from {export.profile.name}"
    for each in export.decisions:
        yield f"#   {each.task.pass_name} {each.task.problem.slug}: {origin(each)}"


def origin(decision: Decision) -> str:
    entry = decision.entry
    if entry is None:
        return _SOURCES[decision.source]
    if decision.source is Source.NEAREST:
        return f"tuned for {lengths_of(entry.problem)}, not measured here"
    return f"tuned, {entry.latency.median_us:g} us"


def call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def table(name: str, rows: Iterable[tuple[Decision, str]]) -> Iterator[str]:
    """A dict from lengths to values that are given as code."""
    yield f"{name} = {{"
    for decision, value in rows:
        problem = decision.task.problem
        line = f"    ({problem.seqlen_q}, {problem.seqlen_k}): {value},"
        yield line if len(line) <= _MAX_LINE else f"{line}  # noqa: E501"
    yield "}"
