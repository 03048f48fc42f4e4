"""What a sweep found, for programs: a stable document."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from attnctl.report._numbers import finite
from attnctl.report._sweep import drop_reason
from attnctl.tune.decide import Comparison
from attnctl.tune.finals import ranked
from attnctl.tune.journal import OutcomeRecord
from attnctl.tune.outcome import TaskResult
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate, Outcome

VERSION = 1


def document(kind: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = finite({"version": VERSION, "kind": kind, "tasks": tasks})
    return found


def dry_run(space: Space, most: int) -> dict[str, Any]:
    return {
        "problem": space.case.problem.slug,
        "pass": space.case.pass_name,
        "space": space.size,
        "dropped": _drops(space),
        "candidates": [_candidate(each) for each in space.candidates],
        "most": most,
        "default": _candidate(space.default),
        "incumbent": _candidate(space.incumbent),
    }


def task(result: TaskResult) -> dict[str, Any]:
    costs = result.costs
    return {
        "problem": result.task.problem.slug,
        "pass": result.task.pass_name,
        "device_name": result.environment.device_name,
        "space": result.space.size,
        "dropped": _drops(result.space),
        "outcomes": dict(Counter(str(each.result.outcome) for each in result.outcomes)),
        "complete": result.measured_all,
        "stopped": result.stopped.reason if result.stopped else None,
        "ranking": [_ranked(each) for each in ranked(list(result.outcomes))],
        "failures": [
            {**_candidate(each.candidate), "outcome": str(each.result.outcome), "reason": each.result.reason}
            for each in result.outcomes
            if each.result.outcome is not Outcome.OK
        ],
        "status": str(result.status),
        "reason": result.decision.reason if result.decision else "",
        "winner": _candidate(result.winner) if result.winner else None,
        "warnings": list(result.warnings),
        "default": _candidate(result.space.default),
        "incumbent": _candidate(result.space.incumbent),
        "against_default": _comparison(result.against_default),
        "against_incumbent": _comparison(result.against_baseline),
        "processes": result.processes,
        "journal": str(result.journal) if result.journal else None,
        "written": str(result.written) if result.written else None,
        "unchanged": result.unchanged,
        "seconds": {
            "screening": round(costs.wall_s, 3),
            "measuring": round(costs.measuring_s, 3),
            "compiling_core": round(costs.compile_core_s, 3),
            "start": round(result.startup_s, 3),
            "finals": round(result.finals_costs.wall_s, 3),
            "last_check": round(result.finals_costs.last_check_s, 3),
        },
    }


def _drops(space: Space) -> list[dict[str, Any]]:
    return [
        {"code": drop.rule.code, "count": count, "reason": drop_reason(drop), "example": _candidate(drop.candidate)}
        for count, drop in space.drops_by_rule()
    ]


def _ranked(record: OutcomeRecord) -> dict[str, Any]:
    timing = record.result.timing
    assert timing is not None
    return {
        **_candidate(record.candidate),
        "median_us": timing.median_us,
        "p20_us": timing.p20_us,
        "p80_us": timing.p80_us,
        "samples": timing.count,
        "lists_us": record.result.lists_us,
        "note": record.note,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {"config": candidate.config, "sparse_block": candidate.sparse_block}


def _comparison(comparison: Comparison | None) -> dict[str, Any] | None:
    return asdict(comparison) if comparison else None
