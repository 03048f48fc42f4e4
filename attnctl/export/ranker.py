"""What the ranker's kernels take: a ``TuningConfig``, or keyword arguments of ``mha``, per pair of lengths."""

from __future__ import annotations

from attnctl.export import Export, _tuning_config
from attnctl.export._code import heading, table

FAMILIES = ("ranker_fa3", "ranker_triton")
SUFFIX = ".py"

_NOT_ARGUMENTS = ("heads_repeated", "history_segment_id", "padding_segment_id", "inference")


def render(export: Export) -> str:
    if export.first.task.family == "ranker_fa3":
        body = [
            "# TuningConfig is the one of the module that defines the kernel: from xrex.pallas.ranker_attention_fa3",
            *_tuning_config.tables(export),
        ]
    else:
        body = ["# mha(q, k, v, ..., **MHA[seqlen_q, seqlen_k])", *_keywords(export)]
    return "\n".join([*heading(export), *body]) + "\n"


def _keywords(export: Export) -> list[str]:
    last = export.decisions[-1].task.pass_name
    rows = []
    for each in export.of_pass(last):
        arguments = {name: value for name, value in each.candidate.config.items() if name not in _NOT_ARGUMENTS}
        rows.append((each, repr(arguments)))
    return list(table("MHA", rows))
