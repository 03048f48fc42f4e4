"""The config of a kernel that a program calls without a profile.

Tuned entries of the kernel are looked for in the folders that a user or the environment names, in files of any name.
An entry may be used where its kernel is the one that runs, its pattern of mask is the same, and the rules allow its
config at the shape that is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnctl.gpu.names import device_slug
from attnctl.profile.here import Here
from attnctl.profile.roots import roots
from attnctl.profile.runtime import NotTuned, answer_of
from attnctl.profile.stale import stored_candidate, why_stale
from attnctl.profile.tuned import Entry, open_tuned
from attnctl_kernels.contract import Case, Family, Mask, PassName, Problem, Task
from attnctl_kernels.families import get_family


@dataclass(frozen=True, slots=True)
class KernelCall:
    """What is asked. ``problem`` is JSON; ``open_mask`` are facts of the mask that only the device knows."""

    family: str
    arch: str | None
    pass_name: PassName
    problem: str
    open_mask: tuple[str, ...]
    device_name: str


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    entry: Entry
    exact: bool


def config_of_call(task: Task, device_name: str, *, open_mask: Sequence[str] = ()) -> dict[str, Any]:
    """The config tuned for this shape, or for the nearest one, or the kernel's default.

    Anything but the first comes with one ``NotTuned`` warning per process.

    Raises:
        AttnctlError: a folder that the environment names is not there, or a tuned profile is damaged.
    """
    problem = task.problem.model_dump_json()
    call = KernelCall(task.family, task.arch, task.pass_name, problem, tuple(open_mask), device_slug(device_name))
    return answer_of(call, _decide)


def _decide(call: KernelCall, notices: list[Warning]) -> dict[str, Any]:
    family, problem = get_family(call.family), Problem.model_validate_json(call.problem)
    here = Here.of(family, call.arch, call.device_name)
    reasons: list[str] = []
    ranked = sorted(_entries(call, family, problem), key=lambda each: _distance(each.entry.problem, problem, call))
    for found in ranked:
        case = _case(call, family, problem, found.entry.problem.mask)
        if reason := why_stale(found.entry, case, versions=here.versions([found.entry]), num_sms=None):
            reasons.append(f"{found.path} is stale: {reason}")
            continue
        if not found.exact:
            notices.append(NotTuned(_excuse(call, problem, reasons, f"the config of {found.entry.problem.slug}")))
        candidate = stored_candidate(found.entry)
        return {"config": dict(candidate.config), "sparse_block": candidate.sparse_block}
    notices.append(NotTuned(_excuse(call, problem, reasons, "the kernel's default")))
    config = family.default_config(problem, call.pass_name, call.arch, None)
    return {"config": config, "sparse_block": family.sparse_block(problem, call.pass_name, config)}


def _entries(call: KernelCall, family: Family, problem: Problem) -> Iterator[_Found]:
    """Those of the kernel that runs, each problem once, from the first folder that has it."""
    wanted = family.kernel_key(_case(call, family, problem, problem.mask))
    met: set[str] = set()
    for root in roots(None):
        for path in sorted((root.path / call.device_name).glob("*.yaml")) if root.path else ():
            tuned = open_tuned(path)
            for key, entry in tuned.entries.items() if tuned.device_name == call.device_name else ():
                there = entry.problem
                if (
                    key not in met
                    and (entry.family, entry.arch, entry.pass_name) == (call.family, call.arch, call.pass_name)
                    and there.mask.pattern == problem.mask.pattern
                    and family.kernel_key(_case(call, family, there, there.mask)) == wanted
                ):
                    met.add(key)
                    yield _Found(path, entry, _facts(there, call) == _facts(problem, call))


def _case(call: KernelCall, family: Family, problem: Problem, mask: Mask) -> Case:
    """With the facts of the mask that the call leaves open from ``mask``."""
    known = {name: getattr(mask, name) for name in call.open_mask}
    lengths = {name: min(value, problem.seqlen_k) for name, value in known.items() if value is not None}
    problem = problem.model_copy(update={"mask": problem.mask.model_copy(update=lengths)})
    config = family.default_config(problem, call.pass_name, call.arch, None)
    return Case(call.family, family.versions[-1], call.arch, problem, call.pass_name, config)


def _facts(problem: Problem, call: KernelCall) -> dict[str, Any]:
    facts = problem.model_dump(mode="json", exclude={"softmax_scale"})
    return {**facts, "mask": {name: value for name, value in facts["mask"].items() if name not in call.open_mask}}


def _distance(there: Problem, here: Problem, call: KernelCall) -> tuple[float, ...]:
    """In log length first, then in log of heads and batch rows; of two at one distance, the longer.

    Of open facts the largest: where most time is spent, the config matters most.
    """

    def apart(*names: str) -> float:
        return round(sum(abs(math.log(getattr(there, name) / getattr(here, name))) for name in names), 9)

    opened = (-(getattr(there.mask, name) or 0) for name in call.open_mask)
    return (
        apart("seqlen_q", "seqlen_k"),
        apart("batch_size", "num_heads_q", "num_heads_kv"),
        -there.seqlen_k,
        *opened,
    )


def _excuse(call: KernelCall, problem: Problem, reasons: Sequence[str], instead: str) -> str:
    why = reasons[0] if reasons else f"nothing is tuned for it on {call.device_name}"
    return f"{call.family} {call.pass_name} {problem.slug}: {why}; {instead} is used"
