"""A call of JAX's Pallas Mosaic GPU attention with its ``TuningConfig``, per pair of lengths."""

from __future__ import annotations

from attnctl.export import Export, _tuning_config
from attnctl.export._code import heading

FAMILIES = ("pallas_mgpu",)
SUFFIX = ".py"

_CALL = '''
def mha(q, k, v, **more):
    """Tensors are (batch, seqlen, heads, head_dim), float16; the softmax scale is the caller's to apply."""
    return {entry}(q, k, v, TUNING[q.shape[1], k.shape[1]], **more)
'''


def render(export: Export) -> str:
    emitter = export.first.candidate.config.get(_tuning_config.ENTRY)
    entry = "attention_with_pipeline_emitter" if emitter else "attention"
    lines = [
        *heading(export),
        f"from jax.experimental.pallas.ops.gpu.attention_mgpu import TuningConfig, {entry}",
        "",
        *_tuning_config.tables(export),
        "",
        *_CALL.format(entry=entry).splitlines(),
    ]
    return "\n".join(lines) + "\n"
