"""Finals: contenders timed side by side, one sample each per cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnctl.gpu.protocol import CachePolicy, Cycle
from attnctl.worker.devices import Device
from attnctl.worker.graphs import Timed
from attnctl.worker.nvml import Nvml


def order_of_cycle(count: int, cycle: int) -> list[int]:
    """The slots of ``count`` contenders in ``cycle``.

    A Williams design: over ``2 * count`` cycles each contender is in each slot equally often, and follows each other
    one equally often. What ran before a kernel leaves clocks and caches behind, so that balanced slots alone would
    leave a bias.
    """
    zigzag = [(each + 1) // 2 if each % 2 else (count - each // 2) % count for each in range(count)]
    turn, reverse = divmod(cycle, 2)
    order = [(each + turn) % count for each in zigzag]
    return order[::-1] if reverse else order


def run_cycle(
    device: Device, timed: Mapping[str, Timed], order: Sequence[int], cache: CachePolicy, nvml: Nvml | None
) -> Cycle:
    """One sample per contender, queued together; then the machine's state."""
    names = [list(timed)[slot] for slot in order]
    samples = device.sample_us([timed[name].run for name in names], cache)
    return Cycle(
        samples_us={name: us / max(1, timed[name].calls) for name, us in zip(names, samples, strict=True)},
        sm_clock_mhz=nvml.sm_clock_mhz() if nvml else None,
        throttle=nvml.throttle() if nvml else (),
    )
