"""One row per problem and pass: what was asked, where the config comes from, its time, and its parameters."""

from __future__ import annotations

import csv
import io
from typing import Any

from attnctl.export import Export
from attnctl.profile.decision import Decision

FAMILIES: tuple[str, ...] = ()
SUFFIX = ".csv"


def render(export: Export) -> str:
    rows = [_row(each) for each in export.decisions]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(decision: Decision) -> dict[str, Any]:
    task, problem, entry = decision.task, decision.task.problem, decision.entry
    block_q, block_kv = decision.candidate.sparse_block or ("", "")
    against = entry.against_default if entry else None
    return {
        "family": task.family,
        "version": task.version,
        "arch": task.arch,
        "device_name": decision.device_name,
        "pass": task.pass_name,
        "batch_size": problem.batch_size,
        "seqlen_q": problem.seqlen_q,
        "seqlen_k": problem.seqlen_k,
        "num_heads_q": problem.num_heads_q,
        "num_heads_kv": problem.num_heads_kv,
        "head_dim": problem.head_dim,
        "head_dim_v": problem.head_dim_v,
        "dtype": problem.dtype,
        "mask": problem.mask.pattern,
        "source": str(decision.source),
        "tuned_for": f"{entry.problem.seqlen_q}x{entry.problem.seqlen_k}" if entry else "",
        "median_us": entry.latency.median_us if entry else "",
        "p20_us": entry.latency.p20_us if entry else "",
        "p80_us": entry.latency.p80_us if entry else "",
        "ratio_to_default": against.ratio if against else "",
        "ratio_low": against.low if against else "",
        "ratio_high": against.high if against else "",
        "sparse_block_q": block_q,
        "sparse_block_kv": block_kv,
        **{f"config.{name}": value for name, value in decision.candidate.config.items()},
    }
