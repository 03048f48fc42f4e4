"""What a profile may say about a call of flash-attn-4: tiles, switches, and what comes with the tensors.

``LAUNCHED`` is what attnctl itself passes to the kernel; the rest is for programs that call it, and is only checked.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import PassName, Scalar
from attnctl_kernels.fa4.backward import NAMES
from attnctl_kernels.fa4.mask_form import BLOCKS

LAUNCHED: dict[PassName, frozenset[str]] = {
    "forward": frozenset(
        {"tile_m", "tile_n", "mma_pv_is_rs", "intra_wg_overlap", "pack_gqa", "mask_form", "subtile_factor"}
    ),
    "backward": frozenset({*NAMES, "subtile_factor"}),
}
# What holds where a config does not say it: attnctl's own parameters, which flash-attn-4 has no argument for.
IMPLIED: dict[PassName, dict[str, Scalar]] = {"forward": {"mask_form": BLOCKS, "subtile_factor": 1}, "backward": {}}


class Shared(BaseModel):
    """Both passes: the mask and the scores as arguments, and the environment."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    causal: bool | None = None
    window_left: int | None = None
    window_right: int | None = None
    softcap: float | None = None
    score_mod: bool | None = None  # whether there is one
    mask_mod: bool | None = None
    mod_reads_globals: bool | None = None
    mod_cute_hash: bool | None = None  # whether a hash is set by hand that changes with what the function reads
    learnable_sink: bool | str | None = None  # whether there is one, or its dtype
    pack_gqa: bool | None = None
    FLASH_ATTENTION_ARCH: int | str | None = None
    FLASH_ATTENTION_NUM_SMS: int | None = None
    CUTE_DSL_ARCH: int | str | None = None
    FA_DISABLE_2CTA: int | None = None
    FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED: int | None = None
    FLASH_ATTENTION_CUTE_DSL_CACHE_DIR: str | None = None


class ForwardConfig(Shared):
    """The tile of the forward kernel, how it orders its work, and how its registers and splits are dealt out."""

    tile_m: int | None = None
    tile_n: int | None = None
    mma_pv_is_rs: bool | None = None
    intra_wg_overlap: bool | None = None
    mask_form: Literal["blocks", "native"] | None = None  # native: the kernel's own causal flag or window
    subtile_factor: int | None = None  # query tiles per sparse block
    q_stage: int | None = None
    num_splits: int | None = None  # below 1: the kernel chooses
    seqlen_k_per_split: int | None = None
    use_clc: bool | None = None
    static_persistent: bool | None = None
    tile_count_semaphore: bool | None = None
    use_tma_o: bool | None = None
    use_s_ping_pong: bool | None = None
    use_2cta: bool | None = None
    page_size: int | None = None
    num_threads: int | None = None
    mma_registers: int | None = None
    producer_registers: int | None = None
    softmax_registers: int | None = None
    correction_registers: int | None = None
    other_registers: int | None = None
    score_mod_vec_size: int | None = None
    mask_mod_vec_size: int | None = None
    qv: bool | None = None  # multi-head latent attention, absorbed
    gather_kv_length: int | None = None


class BackwardConfig(Shared):
    """The backward tile, query tiles per sparse block, and on sm_90 the stages and thread layouts."""

    tile_m: int | None = None
    tile_n: int | None = None
    subtile_factor: int | None = None
    num_stages_Q: int | None = None
    num_stages_dO: int | None = None
    num_stages_PdS: int | None = None
    SdP_swapAB: bool | None = None
    dKV_swapAB: bool | None = None
    dQ_swapAB: bool | None = None
    AtomLayoutMSdP: int | None = None
    AtomLayoutNdKV: int | None = None
    AtomLayoutMdQ: int | None = None
    num_wg: int | None = None
    dQ_single_wg: bool | None = None
    deterministic: bool | None = None
    score_mod_bwd: bool | None = None
    dlse: bool | None = None  # whether a gradient of the log-sum-exp comes in
    FLASH_ATTENTION_BWD_TILE_N: int | None = None
    FLASH_ATTENTION_HD256_GENERIC_BWD: int | None = None
