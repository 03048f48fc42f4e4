"""The nearest known name for one that is not known: other people's words first, then spelling."""

from __future__ import annotations

from collections.abc import Collection

# What other kernels, papers and libraries call our fields and values. Only pairs that spelling does not find.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "b": ("batch_size",),
    "batch": ("batch_size",),
    "bs": ("batch_size",),
    "s": ("seq_len",),
    "seqlen": ("seq_len",),
    "sequence_length": ("seq_len",),
    "context_length": ("seq_len",),
    "seqlens": ("seq_len",),
    "seq_q": ("seqlen_q",),
    "q_len": ("seqlen_q",),
    "seq_k": ("seqlen_k",),
    "seq_kv": ("seqlen_k",),
    "kv_len": ("seqlen_k",),
    "seqlen_kv": ("seqlen_k",),
    "h": ("num_heads_q",),
    "heads": ("num_heads_q",),
    "num_heads": ("num_heads_q",),
    "n_heads": ("num_heads_q",),
    "q_heads": ("num_heads_q",),
    "num_q_heads": ("num_heads_q",),
    "kv_heads": ("num_heads_kv",),
    "num_kv_heads": ("num_heads_kv",),
    "num_heads_k": ("num_heads_kv",),
    "d": ("head_dim",),
    "head_size": ("head_dim",),
    "d_head": ("head_dim",),
    "dim_head": ("head_dim",),
    "dv": ("head_dim_v",),
    "v_head_dim": ("head_dim_v",),
    "data_type": ("dtype",),
    "precision": ("dtype",),
    "scale": ("softmax_scale",),
    "sm_scale": ("softmax_scale",),
    "kernel": ("family",),
    "backend": ("family",),
    "gpu": ("arch",),
    "device": ("arch",),
    "pass": ("passes",),
    "direction": ("passes",),
    "fwd": ("forward",),
    "bwd": ("backward",),
    "block_size": ("sparse_block",),
    "sparse_block_size": ("sparse_block",),
    "params": ("config",),
    "parameters": ("config",),
    "tile": ("config",),
    "space": ("search",),
    "history": ("history_len", "history_candidate"),
    "hist_len": ("history_len",),
    "history_seq_len": ("history_len",),
    "ranker": ("history_candidate",),
    "window_size": ("window",),
    "window_len": ("window",),
    "prefix": ("prefix_len", "prefix_lm"),
    "num_prefix_tokens": ("prefix_len",),
    "doc_len": ("document_len",),
    "doc_lens": ("document_lens",),
    "type": ("pattern",),
    "kind": ("pattern",),
    "full": ("dense",),
    "none": ("dense",),
    "local": ("sliding_window",),
    "swa": ("sliding_window",),
    "block_sparse": ("blocks",),
    "block_list": ("blocks",),
    "bf16": ("bfloat16",),
    "f16": ("float16",),
    "fp16": ("float16",),
    "half": ("float16",),
    "f32": ("float32",),
    "fp32": ("float32",),
    "float": ("float32",),
    "hopper": ("sm_90",),
    "h100": ("sm_90",),
    "h200": ("sm_90",),
    "blackwell": ("sm_100",),
    "b200": ("sm_100",),
    "ampere": ("sm_80",),
    "a100": ("sm_80",),
}


def nearest(name: str, known: Collection[str], limit: int = 1) -> tuple[str, ...]:
    """The known names that ``name`` most likely means, best first; empty where none is near."""
    if len(name) > 64:
        return ()
    plain = {_plain(each): each for each in known}
    word = _plain(name)
    if word in plain:
        return (plain[word],)
    said = [each for each in SYNONYMS.get(name.lower().replace("-", "_"), ()) if each in known]
    if said:
        return tuple(said[:limit])
    import difflib  # noqa: PLC0415 - only for names that are wrong

    return tuple(plain[each] for each in difflib.get_close_matches(word, plain, limit, 0.7))


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())
