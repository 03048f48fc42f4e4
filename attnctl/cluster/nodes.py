"""The nodes of a cluster: which devices they have, and how an actor gets to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from attnctl.cluster.actors import CompilerActor, DeviceActor
from attnctl.cluster.measurer import one_line
from attnctl.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Slot:
    """One device of a node."""

    node_id: str
    host: str
    device: str  # as the node itself calls it

    def device_actor(self, cache: str | None) -> Any:
        """An actor that holds the device: Ray lends a GPU to one at a time, and shows it no other."""
        gpus = 1 if self.device.startswith("cuda") else 0
        options = {"num_cpus": 1, "num_gpus": gpus, "scheduling_strategy": _at(self.node_id), "max_restarts": 0}
        return ray.remote(DeviceActor).options(**options).remote(cache)


def connect(address: str | None) -> None:
    """Join the cluster at ``address``, or the one that this machine belongs to.

    Raises:
        Unavailable: there is none.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        reason = one_line(error)
        hint = "start one with `ray start --head`, or name it: --ray-address"
        raise Unavailable(f"no Ray cluster: {reason}", hint) from None


def slots(*, gpu: bool) -> list[Slot]:
    """Every GPU, or one CPU device per node.

    Raises:
        Unavailable: no node has any.
    """
    found = list(_gpus() if gpu else _cpus())
    if not found:
        what = "GPU" if gpu else "CPU"
        raise Unavailable(f"the Ray cluster has no {what}", "see `ray status`")
    return found


def compilers(cache: str, count: int | None) -> list[Any]:
    """Functions that start a compile worker each: one per free core, on nodes without a GPU if there are such."""
    nodes = [each for each in _alive() if each["Resources"].get("CPU", 0) >= 1]
    without = [each for each in nodes if not each["Resources"].get("GPU")]
    starts = []
    for node in without or nodes:
        # A device's own process needs a core, too.
        cores = int(node["Resources"]["CPU"]) - int(node["Resources"].get("GPU", 0))
        starts += [_Start(node["NodeID"], cache)] * max(0, cores)
    return starts[:count]


@dataclass(frozen=True, slots=True)
class _Start:
    node_id: str
    cache: str

    def __call__(self) -> Any:
        options = {"num_cpus": 1, "scheduling_strategy": _at(self.node_id), "max_restarts": 0}
        return ray.remote(CompilerActor).options(**options).remote(self.cache)


def _gpus() -> Iterator[Slot]:
    for node in _alive():
        for _ in range(int(node["Resources"].get("GPU", 0))):
            yield Slot(node["NodeID"], node["NodeManagerHostname"], "cuda:0")  # the only one that its actor sees


def _cpus() -> Iterator[Slot]:
    """Nodes of one machine, as in tests, have a device each."""
    count: Counter[str] = Counter()
    for node in _alive():
        if node["Resources"].get("CPU", 0) >= 1:
            host = node["NodeManagerHostname"]
            yield Slot(node["NodeID"], host, f"cpu:{count[host]}" if count[host] else "cpu")
            count[host] += 1


def _alive() -> list[dict[str, Any]]:
    """In an order that does not change from run to run."""
    alive = (each for each in ray.nodes() if each["Alive"])
    return sorted(alive, key=lambda each: (each["NodeManagerAddress"], each["NodeID"]))


def _at(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
