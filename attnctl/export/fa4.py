"""Calls of flash-attn-4's entries with their configs, per pair of lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.errors import UsageError
from attnctl.export import Export
from attnctl.export._code import call, heading, table
from attnctl.profile.decision import Decision
from attnctl_kernels.contract import Config
from attnctl_kernels.fa4.backward import NAMES
from attnctl_kernels.fa4.mask_form import is_native, native_arguments

FAMILIES = ("fa4",)
SUFFIX = ".py"

_CALL = '''
def attention(q, k, v, *, mask_mod=None, aux_tensors=None, block_lists=None, **more):
    """Tensors are (batch, seqlen, heads, head_dim). Returns what flash-attn-4 returns: out, lse, and two more.

    ``mask_mod`` and ``block_lists`` say who sees whom: block_lists is (mask_block_cnt, mask_block_idx, full_block_cnt,
    full_block_idx) of int32, built with blocks of SPARSE_BLOCK. Where that is None, FORWARD says it all.
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
_NO_CHOICE = """
# backward: flash-attn-4 takes its tiles from its own tables, and no argument changes them. Build the block lists of the
# backward pass (transposed) with these blocks:"""
_GRADIENTS = '''
def gradients(q, k, v, out, dout, lse, *, mask_mod=None, aux_tensors=None, block_lists=None, **more):
    """Returns dq, dk, dv. ``block_lists`` as for the forward pass, of the query blocks that each key block sees.

    flash-attn-4 has no argument for the config: its own choice is replaced for the length of the call, in all threads.
    Its key of a compiled kernel leaves num_stages_PdS out: configs that differ in that alone must not share a process
    or a cache on disk.
    """
    lengths = q.shape[1], k.shape[1]
    chosen, own = BACKWARD[lengths], interface._tile_size_bwd_sm90
    blocks = None
    if block_lists is not None:
        blocks = BlockSparseTensorsTorch(*block_lists, block_size=SPARSE_BLOCK_BACKWARD[lengths])
    interface._tile_size_bwd_sm90 = lambda *_, **__: chosen
    try:
        return interface._flash_attn_bwd(
            q,
            k,
            v,
            out,
            dout,
            lse,
            softmax_scale=SOFTMAX_SCALE,
            mask_mod=mask_mod,
            aux_tensors=aux_tensors,
            block_sparse_tensors=blocks,
            **more,
        )
    finally:
        interface._tile_size_bwd_sm90 = own
'''
_BLOCK_SIZES = {"tile_m": "m_block_size", "tile_n": "n_block_size"}
_TILE = ("tile_m", "tile_n")
_SWITCHES = ("mma_pv_is_rs", "intra_wg_overlap", "num_splits", "pack_gqa", "softcap")


def render(export: Export) -> str:
    forward, backward = export.of_pass("forward"), export.of_pass("backward")
    chooses = bool(backward) and backward[0].task.arch == "sm_90"  # other kernels have nothing to choose
    if not forward and not chooses:
        raise UsageError(f"{export.profile}: has no forward pass", "flash-attn-4 takes no config for another one here")
    lines = [*heading(export)]
    if chooses:
        lines += ["from flash_attn.cute import interface"]
    lines += ["from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch"]
    if forward:
        lines += ["from flash_attn.cute.interface import _flash_attn_fwd  # the public functions take no tile"]
    lines += ["", f"SOFTMAX_SCALE = {export.first.task.problem.softmax_scale!r}  # None: 1 / sqrt(head_dim)"]
    if forward:
        lines += table("FORWARD", [(each, repr(_arguments(each))) for each in forward])
        lines += [*_blocks("SPARSE_BLOCK", forward), "", *_CALL.splitlines()]
    if chooses:
        lines += ["", *table("BACKWARD", [(each, _chosen(each.candidate.config)) for each in backward])]
        lines += [*_blocks("SPARSE_BLOCK_BACKWARD", backward), "", *_GRADIENTS.splitlines()]
    elif backward:
        lines += [*_NO_CHOICE.splitlines(), *_blocks("SPARSE_BLOCK_BACKWARD", backward)]
    return "\n".join(lines) + "\n"


def _blocks(name: str, decisions: Sequence[Decision]) -> Iterator[str]:
    return table(name, [(each, repr(each.candidate.sparse_block)) for each in decisions])


def _chosen(config: Config) -> str:
    """As code, in upstream's names for the tile."""
    return call("interface.BwdConfig", {_BLOCK_SIZES.get(name, name): config[name] for name in NAMES})


def _arguments(decision: Decision) -> dict[str, object]:
    config = decision.candidate.config
    tile = tuple(config[name] for name in _TILE)
    switches = {name: config[name] for name in _SWITCHES if config.get(name) is not None}
    mask = native_arguments(decision.task.problem) if is_native(config) else {}
    return {"tile_mn": tile, **switches, **mask}
