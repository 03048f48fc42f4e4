"""Profiles, and tuned profiles as `tune` writes them."""

from attnctl.gpu.names import cpu_name
from attnctl.profile.load import load
from attnctl.profile.runtime import choose
from attnctl.profile.tuned import Entry, entry_key, store, tuned_path

PROFILE = """\
schema: 1
family: blocks
problem: {batch_size: 1, seq_len: [1024, 8192], num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 32, block_kv: 32}
"""
FA4 = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 1, seq_len: 4096, num_heads_q: 16, head_dim: 128, dtype: bfloat16}
mask: {pattern: causal}
"""


def write(folder, text=PROFILE):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def store_tuned(path, seqlen, config, *, device=None, root=None, seqlen_k=None, block="config", **changes):
    """One entry for ``path`` at ``seqlen``."""
    loaded = load(path)
    task = choose(loaded, seqlen, seqlen_k, loaded.profile.passes[0])
    facts = {
        "family": task.family,
        "version": task.version,
        "arch": task.arch,
        "pass": task.pass_name,
        "problem": task.problem,
        "config": config,
        "sparse_block": tuple(config.values())[:2] if block == "config" else block,
        "latency": {"median_us": 100.0, "p20_us": 99.0, "p80_us": 101.0, "samples": 30, "cache": "cold"},
        "against_default": None,
        "against_incumbent": None,
        "error": {"out": 1e-7},
        "num_sms": None,
        "versions": {"attnctl": "0"},
        "fingerprints": {
            "problem": entry_key(task, loaded.profile.sparse_block_of(task.pass_name)),
            "rules": "0" * 64,
        },
    }
    device = device or cpu_name()
    where = tuned_path(path, device, root)
    store(where, device, [Entry.model_validate({**facts, **changes})])
    return where


def tile(block_q, block_kv):
    return {"block_q": block_q, "block_kv": block_kv}
