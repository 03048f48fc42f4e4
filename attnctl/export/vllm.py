"""One JSON per device, keyed by the sequence length, in the form of vLLM's tuned fused-MoE configs.

A reader takes the entry whose key is nearest to the length at hand. The file is called after what else must be equal,
as vLLM does it: ``H=16,D=128,dtype=bfloat16,mask=causal,device_name=nvidia_h200.json``.
"""

from __future__ import annotations

import json

from attnctl.errors import UsageError
from attnctl.export import Export
from attnctl_kernels.contract import Problem

FAMILIES: tuple[str, ...] = ()
SUFFIX = ".json"


def render(export: Export) -> str:
    if len({each.task.pass_name for each in export.decisions}) > 1:
        raise UsageError(f"{export.profile}: a file of this form holds one pass", "add --pass forward")
    entries: dict[str, object] = {}
    triton = {
        each.entry.versions["triton"] for each in export.decisions if each.entry and "triton" in each.entry.versions
    }
    if len(triton) == 1:
        entries["triton_version"] = triton.pop()
    for each in export.decisions:
        key = str(each.task.problem.seqlen_q)
        if key in entries:
            raise UsageError(
                f"{export.profile}: two problems have seqlen_q {key}, and the length of the queries is the key",
                "name the lengths of one with --seq-len",
            )
        block = {} if each.candidate.sparse_block is None else {"sparse_block": list(each.candidate.sparse_block)}
        entries[key] = {**each.candidate.config, **block}
    return json.dumps(entries, indent=4) + "\n"


def file_name(export: Export) -> str:
    problem = export.first.task.problem
    return f"{_facts(problem)},device_name={export.first.device_name or 'unknown'}{SUFFIX}"


def _facts(problem: Problem) -> str:
    heads = f"H={problem.num_heads_q}"
    if problem.num_heads_kv != problem.num_heads_q:
        heads += f",H_kv={problem.num_heads_kv}"
    dims = f"D={problem.head_dim}"
    if problem.head_dim_v != problem.head_dim:
        dims += f",D_v={problem.head_dim_v}"
    return f"{heads},{dims},dtype={problem.dtype},mask={problem.mask.pattern}"
