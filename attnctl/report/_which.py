"""What `which` shows of a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnctl.profile.decision import Decision, Source, lengths_of
from attnctl.profile.runtime import excuse

VERSION = 1


def text(path: Path, decision: Decision) -> Iterator[str]:
    task = decision.task
    yield f"{task.problem.slug} {task.pass_name} on {decision.device_name or 'an unknown device'}"
    width = max(len(step.where) for step in decision.steps)
    for step in decision.steps:
        mark = ">" if step.used else " "
        yield f"{mark} {step.where.ljust(width)}  {step.result}"
    yield f"config: {decision.candidate}"
    if decision.entry is not None:
        latency = decision.entry.latency
        lengths = lengths_of(decision.entry.problem)
        yield f"tuned:  {latency.median_us:g} us at {lengths} ({latency.cache} L2 cache, {latency.samples} samples)"
    if decision.source is not Source.TUNED:
        yield f"note:   {excuse(path, decision)}"


def as_json(path: Path, decisions: Sequence[Decision]) -> dict[str, Any]:
    return {"version": VERSION, "kind": "which", "profile": str(path), "decisions": [_one(each) for each in decisions]}


def _one(decision: Decision) -> dict[str, Any]:
    task, entry = decision.task, decision.entry
    return {
        "problem": task.problem.model_dump(mode="json"),
        "pass": task.pass_name,
        "device_name": decision.device_name,
        "source": str(decision.source),
        "config": dict(decision.candidate.config),
        "sparse_block": decision.candidate.sparse_block,
        "path": None if decision.path is None else str(decision.path),
        "tuned_for": entry and {"seqlen_q": entry.problem.seqlen_q, "seqlen_k": entry.problem.seqlen_k},
        "latency_us": entry and entry.latency.median_us,
        "why_not_tuned": decision.why_not_tuned or None,
        "steps": [{"where": step.where, "result": step.result, "used": step.used} for step in decision.steps],
    }
