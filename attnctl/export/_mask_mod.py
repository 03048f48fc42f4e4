"""The mask as the source of a FlexAttention ``mask_mod``."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Mask

# Queries are aligned at the end: query i sits at position i + shift.
_VISIBLE = {
    "causal": "kv_idx <= q_idx + shift",
    "sliding_window": "(kv_idx <= q_idx + shift) & (kv_idx > q_idx + shift - {window})",
    "prefix_lm": "(kv_idx < {prefix_len}) | (kv_idx <= q_idx + shift)",
    "history_candidate": "(kv_idx < {history_len}) | (kv_idx == q_idx)",
}


def source(mask: Mask) -> Iterator[str]:
    """A function ``make_mask_mod(seqlen_q, seqlen_k, device)``; nothing for a dense mask."""
    if mask.pattern == "dense":
        return
    yield "def make_mask_mod(seqlen_q, seqlen_k, device):"
    if mask.pattern == "blocks":
        block_q, block_kv = mask.block_size or (1, 1)
        yield f"    rows = {[list(row) for row in mask.rows or ()]}"
        yield f"    listed = torch.zeros(-(-seqlen_q // {block_q}), -(-seqlen_k // {block_kv}), dtype=torch.bool)"
        yield "    for row, keys in enumerate(rows):"
        yield "        listed[row, keys] = True"
        yield "    listed = listed.to(device)"
        visible = f"listed[q_idx // {block_q}, kv_idx // {block_kv}]"
    elif mask.pattern == "document":
        yield "    shift = seqlen_k - seqlen_q"
        yield f"    lengths = torch.tensor({_document_lengths(mask)})"
        yield "    document = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:seqlen_k].to(device)"
        visible = "(document[(q_idx + shift).clamp(min=0)] == document[kv_idx]) & (q_idx + shift >= 0)"
        visible += " & (kv_idx <= q_idx + shift)" if mask.causal else ""
    else:
        if mask.pattern != "history_candidate":
            yield "    shift = seqlen_k - seqlen_q"
        visible = _VISIBLE[mask.pattern].format(**mask.model_dump())
    yield ""
    yield "    def mask_mod(b, h, q_idx, kv_idx):"
    yield f"        return {visible}"
    yield ""
    yield "    return mask_mod"


def _document_lengths(mask: Mask) -> str:
    if mask.document_lens is not None:
        return str(list(mask.document_lens))
    return f"[{mask.document_len}] * (-(-seqlen_k // {mask.document_len}))"
