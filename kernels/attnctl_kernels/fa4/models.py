"""The resource table: what a case takes on its arch, where there is a model of that."""

from __future__ import annotations

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, Resource
from attnctl_kernels.fa4 import backward, blackwell, resources, tiles
from attnctl_kernels.fa4.call import Call


def covers(case: Case) -> bool:
    """Whether the case is on sm_90, with a tile and layouts that the kernel can be built for."""
    if case.arch != "sm_90":
        return False
    if case.pass_name == "backward":  # noqa: S105 - not a password
        return backward.sm90_modelled(case) is not None
    tile_m, tile_n = case.config.get("tile_m"), case.config.get("tile_n")
    return (
        tile_m in tiles.SM90_TILES_M
        and isinstance(tile_n, int)
        and tile_n in range(tiles.GRANULE, tiles.MAX_TILE_N + 1, tiles.GRANULE)
    )


def resources_of(case: Case) -> tuple[Resource, ...]:
    call = Call(case)
    if not call.tile_m or not call.tile_n:
        return ()
    if case.pass_name == "backward":  # noqa: S105 - not a password
        return _backward(case, call)
    if case.arch == "sm_90":
        return _hopper(case) if covers(case) else ()
    if call.on_blackwell:
        return () if call.get("qv") else blackwell.forward_resources(call)
    smem = resources.ampere_smem_bytes(case.problem, call.tile_m, call.tile_n)
    return _smem(case, smem)


def _smem(case: Case, used: int) -> tuple[Resource, ...]:
    arch = ARCHES.get(case.arch or "")
    return (Resource("shared memory", used, arch.smem_bytes, "bytes"),) if arch else ()


def _hopper(case: Case) -> tuple[Resource, ...]:
    held = resources.accumulator_registers(case.problem, case.config)
    cap = resources.REGISTER_CAP[resources.warp_groups(case.config)]
    return (
        *_smem(case, resources.smem_bytes(case.problem, case.config)),
        Resource("accumulators per MMA thread", held, cap, "registers"),
    )


def _backward(case: Case, call: Call) -> tuple[Resource, ...]:
    if call.on_blackwell:
        return blackwell.backward_resources(call)
    if case.arch == "sm_120":
        return _smem(case, backward.sm120_smem_bytes(case.problem))
    config = backward.sm90_modelled(case) if case.arch == "sm_90" else None
    if config is None:
        return ()
    held, cap = backward.sm90_registers(case.problem, config), resources.REGISTER_CAP[config.num_wg]
    return (
        *_smem(case, backward.sm90_smem_bytes(case.problem, config)),
        Resource("accumulators per MMA thread", held, cap, "registers"),
    )
