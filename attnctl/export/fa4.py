"""A call of flash-attn-4's forward entry with its tile, per pair of lengths."""

from __future__ import annotations

from attnctl.errors import UsageError
from attnctl.export import Export
from attnctl.export._code import heading, table
from attnctl_kernels.contract import Config

FAMILIES = ("fa4",)
SUFFIX = ".py"

_CALL = '''
def attention(q, k, v, *, mask_mod=None, aux_tensors=None, block_lists=None, **more):
    """Tensors are (batch, seqlen, heads, head_dim). Returns what flash-attn-4 returns: out, lse, and two more.

    ``mask_mod`` and ``block_lists`` say who sees whom: block_lists is (mask_block_cnt, mask_block_idx, full_block_cnt,
    full_block_idx) of int32, built with blocks of SPARSE_BLOCK.
    """
    lengths = q.shape[1], k.shape[1]
    blocks = None
    if block_lists is not None:
        blocks = BlockSparseTensorsTorch(*block_lists, block_size=SPARSE_BLOCK[lengths])
    return _flash_attn_fwd(
        q,
        k,
        v,
        softmax_scale=SOFTMAX_SCALE,
        mask_mod=mask_mod,
        aux_tensors=aux_tensors,
        block_sparse_tensors=blocks,
        return_lse=True,
        **(FORWARD[lengths] | more),
    )
'''
_BACKWARD = """
# backward: flash-attn-4 takes its tiles from its own tables, and no argument changes them. Build the block lists of the
# backward pass (transposed) with these blocks:"""
_TILE = ("tile_m", "tile_n")
_SWITCHES = ("mma_pv_is_rs", "intra_wg_overlap", "num_splits", "pack_gqa", "softcap")


def render(export: Export) -> str:
    forward = export.of_pass("forward")
    if not forward:
        raise UsageError(f"{export.profile}: has no forward pass", "flash-attn-4 takes arguments for that pass alone")
    lines = [
        *heading(export),
        "from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch",
        "from flash_attn.cute.interface import _flash_attn_fwd  # the public functions take no tile",
        "",
        f"SOFTMAX_SCALE = {forward[0].task.problem.softmax_scale!r}  # None: 1 / sqrt(head_dim)",
        *table("FORWARD", [(each, repr(_arguments(each.candidate.config))) for each in forward]),
        *table("SPARSE_BLOCK", [(each, repr(each.candidate.sparse_block)) for each in forward]),
        "",
        *_CALL.splitlines(),
    ]
    if backward := export.of_pass("backward"):
        rows = [(each, repr(each.candidate.sparse_block)) for each in backward]
        lines += [*_BACKWARD.splitlines(), *table("SPARSE_BLOCK_BACKWARD", rows)]
    return "\n".join(lines) + "\n"


def _arguments(config: Config) -> dict[str, object]:
    tile = tuple(config[name] for name in _TILE)
    return {"tile_mn": tile, **{name: config[name] for name in _SWITCHES if config.get(name) is not None}}
