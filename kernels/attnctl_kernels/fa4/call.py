"""A forward call as flash-attn-4's interface sees it: what the profile says, completed as the interface does.

The conditions are those of ``flash_attn/cute/config.py``, which states as functions what ``interface.py`` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import mask_form, tiles

MOST_AUTO_SPLITS = 128
USUAL_SMS = 148  # where the arch does not say: parts differ
ROWS = 128  # of a Blackwell tile


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Call:
    case: Case

    def get(self, name: str, default: Any = None) -> Any:
        return self.case.config.get(name, default)

    def number(self, name: str) -> int:
        """The parameter, or 0 where it is left out or makes no sense: another rule says so."""
        value = self.case.config.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    @property
    def tile_m(self) -> int:
        return self.number("tile_m")

    @property
    def tile_n(self) -> int:
        return self.number("tile_n")

    @property
    def on_blackwell(self) -> bool:
        return self.case.arch in tiles.BLACKWELL

    @property
    def num_sms(self) -> int:
        arch = ARCHES.get(self.case.arch or "")
        return self.number("FLASH_ATTENTION_NUM_SMS") or (arch.num_sms if arch else 0) or USUAL_SMS

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return max(1, self.case.problem.num_heads_q // self.case.problem.num_heads_kv)

    @property
    def dims(self) -> tuple[int, int]:
        return self.case.problem.head_dim, self.case.problem.head_dim_v

    @property
    def is_256(self) -> bool:
        return self.dims == (256, 256)

    @property
    def varlen(self) -> tuple[str, ...]:
        return self.case.problem.varlen or ()

    @property
    def varlen_q(self) -> bool:
        return "cu_seqlens_q" in self.varlen or "seqused_q" in self.varlen

    @property
    def sparse(self) -> bool:
        return mask_form.uses_lists(self.case.problem, self.case.config)

    @property
    def masked(self) -> bool:
        """Whether a mask function comes with the call: then causal and window are dropped."""
        return self.sparse or bool(self.get("mask_mod"))

    @property
    def causal_and_local(self) -> tuple[bool, bool]:
        """As ``_resolve_causal_local_window``."""
        if self.masked:
            return False, False
        left, right = self.window
        if left is None and right is None:
            return False, False
        causal: bool = left is None and right == 0
        return causal, not causal

    @property
    def window(self) -> tuple[int | None, int | None]:
        """Keys before and after a query that it sees; None: all. From the mask's own form, or as the profile states."""
        mask = self.case.problem.mask
        if mask_form.is_native(self.case.config) and mask.pattern in mask_form.FORMS_OF_ITS_OWN:
            return (None if mask.pattern == "causal" else (mask.window or 1) - 1), 0
        left, right = self.get("window_left"), self.get("window_right")
        if left is not None and right is not None and left < 0 and right < 0:
            left = right = None
        return left, 0 if self.get("causal") else right

    @property
    def pack_gqa(self) -> bool:
        """Whether the query heads of a group share the rows of a tile."""
        given = self.get("pack_gqa")
        if given is not None:
            return bool(given)
        if self.group == 1:
            return False
        problem = self.case.problem
        one_wave = self.get("num_splits", 1) == 1 and 2 * problem.batch_size * problem.num_heads_q <= self.num_sms
        prefers_pairs = (
            self.on_blackwell
            and self.is_256
            and ROWS % self.group != 0
            and "seqused_q" not in self.varlen
            and (problem.seqlen_q > ROWS or one_wave)
        )
        return not prefers_pairs

    @property
    def packed_rows(self) -> int:
        return self.case.problem.seqlen_q * (self.group if self.pack_gqa else 1)

    @property
    def q_stage(self) -> int:
        """As the profile says, or as the kernel picks."""
        return self.number("q_stage") or self.own_q_stage

    @property
    def own_q_stage(self) -> int:
        return tiles.q_stage(self.case.problem, self.case.arch, packs=self.pack_gqa)

    @property
    def num_splits(self) -> int:
        """As the profile says; what the kernel picks where it says 0 or less."""
        given: int = self.get("num_splits", 1)
        return given if given >= 1 else self.auto_splits

    @property
    def auto_splits(self) -> int:
        """As ``num_splits_heuristic``: no split of few key tiles, and none where the tiles fill the device."""
        problem = self.case.problem
        if not self.tile_m or not self.tile_n:
            return 1
        key_tiles = ceil_div(self._keys_of_a_tile(), self.tile_n)
        heads = problem.num_heads_kv * (1 if self.pack_gqa else self.group)
        tiles_q = problem.batch_size * heads * ceil_div(self.packed_rows, self.own_q_stage * self.tile_m)
        return 1 if key_tiles <= 4 else max(1, min(self.num_sms // tiles_q, MOST_AUTO_SPLITS, key_tiles))

    def _keys_of_a_tile(self) -> int:
        keys = self.case.problem.seqlen_k
        if not self.causal_and_local[1]:
            return keys
        left, right = self.window
        return max(
            0, min(keys, (keys if left is None else left) + (keys if right is None else right) + 1 + self.tile_m)
        )

    @property
    def page_size(self) -> int | None:
        size: int | None = self.get("page_size")
        return size

    @property
    def pages_are_tiles(self) -> bool:
        return self.page_size in (None, self.tile_n)

    @property
    def can_pair(self) -> bool:
        """As ``is_2cta_eligible``."""
        problem, (causal, local) = self.case.problem, self.causal_and_local
        heads = problem.num_heads_kv if self.pack_gqa else problem.num_heads_q
        one_wave = self.is_256 and 2 * problem.batch_size * heads <= self.num_sms
        dense = not causal and not local and tiles.padded(self.dims[0]) in (128, 192)
        return (
            self.num_splits == 1
            and ("cu_seqlens_q" not in self.varlen or self.is_256)
            and "seqused_q" not in self.varlen
            and not self.sparse
            and self.page_size in (None, ROWS)
            and (self.packed_rows > self.q_stage * self.tile_m or one_wave)
            and (self.tile_m % self.group == 0 or not self.pack_gqa)
            and (self.is_256 or (dense and tiles.padded(self.dims[1]) == 128))
        )

    @property
    def pairs(self) -> bool:
        """Whether two CTAs share the keys of a tile."""
        given = self.get("use_2cta")
        return bool(given) if given is not None else self.on_blackwell and not self.disables_pairs and self.can_pair

    @property
    def disables_pairs(self) -> bool:
        return bool(self.get("FA_DISABLE_2CTA") == 1)

    @property
    def semaphore_schedules(self) -> bool:
        return self.varlen_q and bool(self.get("tile_count_semaphore"))

    @property
    def can_clc(self) -> bool:
        """As ``can_use_clc``."""
        return self.pages_are_tiles and not self.semaphore_schedules and not (self.is_256 and self.pairs)

    @property
    def can_stay(self) -> bool:
        """As ``can_use_static_persistent``."""
        if self.num_splits > 1 or self.get("use_clc") or self.semaphore_schedules:
            return False
        causal, local = self.causal_and_local
        ragged = "cu_seqlens_q" in self.varlen
        one_block = self.packed_rows <= self.q_stage * self.tile_m
        paired = self.pairs and not ragged and (causal or local)
        return (not causal and not local and not self.varlen_q) or (one_block and not paired)

    @property
    def can_tma_o(self) -> bool:
        """As ``can_use_tma_o``."""
        packs_badly = self.pack_gqa and (self.tile_m % self.group != 0 or self.num_splits > 1)
        return not (self.num_splits > 1 and self.dims[1] == 256) and not packs_badly and not self.varlen_q

    @property
    def can_ping_pong(self) -> bool:
        """As ``can_use_s_ping_pong``."""
        return (
            self.q_stage == 1
            and self.dims[0] == self.dims[1]
            and self.dims[0] in (64, 128, 256)
            and (self.tile_m, self.tile_n) == (128, 128)
            and self.pages_are_tiles
            and not self.get("score_mod")
            and not self.masked
            and not self.get("learnable_sink")
        )
