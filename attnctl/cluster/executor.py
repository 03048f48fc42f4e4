"""The devices and the compile workers of a Ray cluster, for one profile at a time."""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import ray
from ray.exceptions import RayError

from attnctl.cluster import nodes
from attnctl.cluster.measurer import RayMeasurer
from attnctl.cluster.nodes import Slot
from attnctl.cluster.pool import RayPool
from attnctl.errors import AttnctlError, Unavailable
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.lane import Lane, Lanes
from attnctl.gpu.names import device_slug
from attnctl.gpu.protocol import Hello
from attnctl.profile.model import Profile
from attnctl.state import CACHE_FOLDER_VARIABLE

Say = Callable[[str], None]

_LOCK_TIMEOUT_S = 30.0  # what is in use longer than that is left out
_SEES_TIMEOUT_S = 60.0


class RayCluster:
    """A cluster that this process has joined."""

    def __init__(self, address: str | None = None, device_name: str | None = None) -> None:
        """``device_name``: the model to tune, where the cluster has several.

        Raises:
            Unavailable: there is no cluster.
        """
        nodes.connect(address)
        self._device_name = device_slug(device_name) if device_name else None
        self._cache = os.environ.get(CACHE_FOLDER_VARIABLE)

    def lanes(self, profile: Profile, deadlines: Deadlines, say: Say) -> Lanes:
        """A lane per device of one model. A device that cannot be had is left out, and said.

        Raises:
            Unavailable: none can be had.
        """
        wanted = nodes.slots(gpu=profile.arch is not None)
        opened = [(slot, self._lane(slot, profile, deadlines)) for slot in wanted]
        usable: dict[tuple[object, ...], list[Lane]] = defaultdict(list)
        reason = ""
        for slot, lane in opened:
            try:
                environment = lane.measurer.environment
            except AttnctlError as error:
                reason = f"{slot.host}: {error.message}"
                say(f"going on without a device of {reason}")
                lane.close()
                continue
            model = (environment.device_name, environment.arch, environment.num_sms, str(environment.versions))
            usable[model].append(lane)
        return Lanes(_one_model(usable, self._device_name, profile.arch, reason, say))

    def pool(self, profile: Profile, deadlines: Deadlines, jobs: int | None, say: Say) -> RayPool | None:
        """Compile workers, if the cluster shares the cache that they fill."""
        if jobs == 0 or profile.arch is None:
            return None
        if self._cache is None:
            say(f"no compile workers: name a folder that all nodes see in {CACHE_FOLDER_VARIABLE}")
            return None
        starts = nodes.compilers(self._cache, jobs)
        token = Path(self._cache) / f".attnctl-{secrets.token_hex(8)}"
        token.parent.mkdir(parents=True, exist_ok=True)
        token.touch()
        try:
            if not starts or not _sees(starts[0], token):
                say(f"no compile workers: {self._cache} is not the same folder on all nodes")
                return None
        finally:
            token.unlink()
        return RayPool(starts, Hello(family=profile.family, arch=profile.arch, device="none"), deadlines)

    def _lane(self, slot: Slot, profile: Profile, deadlines: Deadlines) -> Lane:
        hello = Hello(family=profile.family, arch=profile.arch, device=slot.device)
        return Lane(partial(_open, slot, self._cache, hello, deadlines))


def _open(slot: Slot, cache: str | None, hello: Hello, deadlines: Deadlines) -> RayMeasurer:
    return RayMeasurer(slot.device_actor(cache), hello, deadlines, _LOCK_TIMEOUT_S)


def _sees(start: Callable[[], object], token: Path) -> bool:
    actor = start()
    try:
        return bool(ray.get(actor.sees.remote(str(token)), timeout=_SEES_TIMEOUT_S))  # type: ignore[attr-defined]
    except RayError:
        return False
    finally:
        ray.kill(actor)


def _one_model(
    usable: dict[tuple[object, ...], list[Lane]], device_name: str | None, arch: str | None, reason: str, say: Say
) -> Sequence[Lane]:
    """The lanes of the model that is asked for, or of the one with most devices; the others are closed."""
    fitting = {
        model: lanes
        for model, lanes in usable.items()
        if device_name in {None, model[0]} and (arch is None or model[1] in {None, arch})
    }
    chosen = max(fitting, key=lambda model: len(fitting[model]), default=None)
    for model, lanes in usable.items():
        if model != chosen:
            say(f"{len(lanes)} x {model[0]} left out: {_why_out(model, chosen)}")
            for lane in lanes:
                lane.close()
    if chosen is None:
        what = " ".join(filter(None, (device_name, arch))) or "device"
        raise Unavailable(f"the Ray cluster has no {what} that can be used{f' ({reason})' if reason else ''}")
    return usable[chosen]


def _why_out(model: tuple[object, ...], chosen: tuple[object, ...] | None) -> str:
    if chosen is not None and model[:3] == chosen[:3]:
        return "other versions than on the other nodes"
    return "another model; --ray-device-name names the one to tune"
