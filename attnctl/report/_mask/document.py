"""What a mask costs, for programs. Stable: fields are only ever added."""

from __future__ import annotations

from typing import Any

from attnctl.report._mask.blocks import Blocks
from attnctl.report._mask.coverage import Coverage, coverage
from attnctl_kernels.families import get_family

VERSION = 1


def described(blocks: Blocks) -> dict[str, Any]:
    """One problem and pass."""
    case, found = blocks.case, coverage(blocks)
    return {
        "problem": case.problem.slug,
        "pass": case.pass_name,
        "config": dict(case.config),
        **costs(found),
        "resources": [
            {"name": each.name, "used": each.used, "limit": each.limit, "unit": each.unit, "headroom": each.headroom}
            for each in get_family(case.family).resources(case)
        ],
    }


def costs(found: Coverage) -> dict[str, Any]:
    """Counts, operations and waves; ``partial`` includes ``diagonal``."""
    return {
        "block": list(found.block),
        "blocks": {
            "full": found.full,
            "partial": found.partial,
            "empty": found.empty,
            "diagonal": found.diagonal,
        },
        "per_row": {"fewest": found.fewest, "most": found.most, "mean": found.mean},
        "density": {"blocks": found.block_density, "pairs": found.pair_density},
        "flop": {"needed": found.needed_flop, "executed": found.executed_flop, "waste": found.waste},
        "waves": found.waves
        and {
            "thread_blocks": found.waves.thread_blocks,
            "num_sms": found.waves.num_sms,
            "count": found.waves.count,
            "last": found.waves.last,
        },
    }
