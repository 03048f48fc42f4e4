"""A call of FlexAttention: ``kernel_options``, the mask function and the block size, per pair of lengths."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.errors import UsageError
from attnctl.export import Export, _mask_mod
from attnctl.export._code import heading, table
from attnctl.profile.decision import Decision
from attnctl_kernels.flex.options import KERNEL_OPTIONS, PREFIX

FAMILIES = ("flex",)
SUFFIX = ".py"

_CALL = '''
@lru_cache(maxsize=16)
def block_mask(seqlen_q, seqlen_k, device):
    return create_block_mask(
        make_mask_mod(seqlen_q, seqlen_k, device),
        B=None,
        H=None,
        Q_LEN=seqlen_q,
        KV_LEN=seqlen_k,
        device=device,
        BLOCK_SIZE=BLOCK_SIZE[seqlen_q, seqlen_k],
    )


def attention(query, key, value, **more):
    """Tensors are (batch, heads, seqlen, head_dim)."""
    lengths = query.shape[-2], key.shape[-2]
    return compiled_flex_attention(
        query,
        key,
        value,
        block_mask=block_mask(*lengths, query.device),
        scale=SCALE,
        enable_gqa=query.shape[1] != key.shape[1],
        kernel_options=KERNEL_OPTIONS[lengths],
        **more,
    )
'''


def render(export: Export) -> str:
    rows = list(_merged(export))
    mask = export.first.task.problem.mask
    call = _CALL if mask.pattern != "dense" else _dense(_CALL)
    lines = [
        *heading(export),
        *(["from functools import lru_cache", ""] if mask.pattern != "dense" else []),
        "import torch",
        "from torch.nn.attention.flex_attention import create_block_mask, flex_attention"
        if mask.pattern != "dense"
        else "from torch.nn.attention.flex_attention import flex_attention",
        "",
        f"SCALE = {export.first.task.problem.softmax_scale!r}  # None: 1 / sqrt(head_dim)",
        *table("KERNEL_OPTIONS", [(decision, repr(options)) for decision, options in rows]),
        *table("BLOCK_SIZE", [(decision, repr(decision.candidate.sparse_block)) for decision, _ in rows]),
        "",
        "# Uncompiled it is a slow reference. One graph per shape: dynamic shapes would take other kernels.",
        "compiled_flex_attention = torch.compile(flex_attention, dynamic=False)",
        "",
        "",
        *_mask_mod.source(mask),
        *(["", ""] if mask.pattern != "dense" else []),
        *call.strip().splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _dense(call: str) -> str:
    """Without a mask there is no block mask to build."""
    return call[call.index("def attention") :].replace("        block_mask=block_mask(*lengths, query.device),\n", "")


def _merged(export: Export) -> Iterator[tuple[Decision, dict[str, object]]]:
    """One set of options serves all passes: where there are two, their prefixes tell them apart."""
    by_lengths: dict[tuple[int, int], tuple[Decision, dict[str, object]]] = {}
    several = len({each.task.pass_name for each in export.decisions}) > 1
    for each in export.decisions:
        problem = each.task.problem
        first, options = by_lengths.setdefault((problem.seqlen_q, problem.seqlen_k), (each, {}))
        if first.candidate.sparse_block != each.candidate.sparse_block:
            raise UsageError(
                f"{export.profile}: forward runs at blocks of {first.candidate.sparse_block}, backward at "
                f"{each.candidate.sparse_block}, and one BlockMask has one size",
                "fix `sparse_block` in the profile, and tune again",
            )
        for name, value in each.candidate.config.items():
            if name in KERNEL_OPTIONS:
                prefixed = PREFIX[each.task.pass_name] + name
                options[prefixed if several and prefixed in KERNEL_OPTIONS else name] = value
    yield from by_lengths.values()
