"""The facts of a report for programs. Stable: fields are only ever added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from attnctl._version import __version__
from attnctl.report import _sweep, _sweep_json
from attnctl.report._mask.blocks import blocks_of
from attnctl.report._mask.document import described
from attnctl.report._numbers import finite
from attnctl.report._page.compared import Pair
from attnctl.report._page.contents import Contents
from attnctl.report._page.recall import Recalled
from attnctl.report._page.rows import Row
from attnctl.tune.decide import good_cycles

VERSION = 1


def document(contents: Contents) -> dict[str, Any]:
    """Everything; ``masks`` are those of the profiles, as `show --json` describes them."""
    facts: dict[str, Any] = finite(
        {
            "version": VERSION,
            "kind": "report",
            "attnctl": __version__,
            "sweeps": [_described(sweep, found) for sweep, found in contents.sweeps],
            "compared": [_pair(each) for each in contents.pairs],
            "masks": [described(blocks_of(case)) for case in contents.cases],
        }
    )
    return facts


def _described(sweep: Recalled, found: Sequence[Row]) -> dict[str, Any]:
    result, header = sweep.result, sweep.header
    return {
        **_sweep_json.task(result),
        "profile": header.profile,
        "family": header.task.family,
        "version": header.task.version,
        "arch": header.task.arch,
        "cache": header.cache,
        "shapes": header.task.problem.model_dump(mode="json"),
        "attnctl": header.attnctl,
        "environment": header.environment.model_dump(mode="json"),
        "prepared": sweep.recorded.prepared and sweep.recorded.prepared.model_dump(mode="json"),
        "space_known": sweep.whole,
        "verdict": list(_sweep.verdict(result)),
        "candidates": [_row(row) for row in found],
        "finals": _finals(sweep),
    }


def _row(row: Row) -> dict[str, Any]:
    facts = asdict(row)
    facts.pop("candidate")
    return {"config": row.candidate.config, "sparse_block": row.candidate.sparse_block, **facts}


def _finals(sweep: Recalled) -> dict[str, Any]:
    """Interval of each contender, and the machine's state in each cycle."""
    decision = sweep.result.decision
    clock = sweep.header.environment.clock_default_mhz
    processes = [each.cycles for each in sweep.recorded.finals]
    good = [{id(cycle) for cycle in cycles} for cycles in good_cycles(processes, clock)]
    return {
        "baseline": sweep.result.baseline,
        "winner": decision.winner if decision else None,
        "against_baseline": {name: asdict(each) for name, each in decision.vs_incumbent.items()} if decision else {},
        "throttle": dict(Counter(reason for cycles in processes for cycle in cycles for reason in cycle.throttle)),
        "processes": [
            [
                {"sm_clock_mhz": cycle.sm_clock_mhz, "throttle": cycle.throttle, "dropped": id(cycle) not in kept}
                for cycle in cycles
            ]
            for cycles, kept in zip(processes, good, strict=True)
        ],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "first": pair.first.header.profile,
        "second": pair.second.header.profile,
        "differences": list(pair.differences),
        "configs_in_both": len(pair.points),
        "first_winner_in_second": pair.first_in_second,
        "second_winner_in_first": pair.second_in_first,
    }
