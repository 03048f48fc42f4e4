"""Hardware limits per arch, from CUDA's compute-capability table; all counts are per block unless named.

``smem_bytes`` is what flash-attn-4 gets from ``get_smem_capacity_in_bytes`` (the opt-in maximum less 1 KiB).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arch:
    name: str
    smem_bytes: int
    sm_registers: int = 65536
    thread_registers: int = 255
    tmem_columns: int = 0
    num_sms: int = 0  # of the part that people mean by it; 0: several parts differ


ARCHES: dict[str, Arch] = {
    each.name: each
    for each in (
        Arch("sm_80", 166912, num_sms=108),
        Arch("sm_86", 101376),
        Arch("sm_89", 101376),
        Arch("sm_90", 232448, num_sms=132),
        Arch("sm_100", 232448, tmem_columns=512, num_sms=148),
        Arch("sm_103", 232448, tmem_columns=512),
        Arch("sm_110", 232448, tmem_columns=512),
        Arch("sm_120", 101376),
    )
}
