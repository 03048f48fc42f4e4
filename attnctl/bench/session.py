"""Benchmark a profile on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnctl.bench.gate import parse_band
from attnctl.bench.plan import BASE, BaseConfig, Plan, check_against, plans
from attnctl.bench.result import Match
from attnctl.bench.rows import unchanged
from attnctl.bench.run import Say, run
from attnctl.bench.settings import Settings
from attnctl.errors import UsageError
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import CachePolicy, Hello
from attnctl.profile.load import Loaded
from attnctl.profile.model import Profile
from attnctl.state import state_dir
from attnctl.tune.device import check_device, device_of
from attnctl_kernels.families import get_family


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    against: Sequence[str]
    gate: bool
    cycles: int
    cache: CachePolicy
    device: str | None = None  # "cpu", "cuda:0"; None: what the family runs on
    tuned: Path | None = None  # where tuned profiles are; None: beside the profile
    base: BaseConfig | None = None  # what to compare with besides ``against``; only what differs from it is measured
    base_python: str | None = None  # with the base's packages: its kernels are measured, changed or not
    judge_stored: bool = False  # the gate goes by the stored time, too


def matches(loaded: Loaded, options: Options, say: Say) -> Iterator[Match]:
    """One per problem and pass of a profile without errors, each as soon as it is measured.

    Raises:
        UsageError: the profile, or a name to compare with, makes no benchmark.
        Unavailable: there is no such device, or a package is missing.
    """
    profile = loaded.profile
    assert profile is not None
    family = get_family(profile.family)
    if not family.tunable:
        raise UsageError(f"{loaded.path}: {family.name} has rules only, it cannot be measured")
    check_against(options.against, family.name)
    settings = Settings(
        cycles=options.cycles,
        cache=options.cache,
        state_dir=state_dir(),
        band=_band(loaded, profile) if options.gate else None,
        judge_stored=options.judge_stored,
    )
    hello = Hello(family=family.name, arch=profile.arch, device=device_of(profile, options.device))
    with Measurer(hello, settings.deadlines, settings.state_dir, on_wait=say) as measurer:
        check_device(loaded.path, profile, measurer.environment, say)
        asked = plans(
            loaded,
            measurer.environment,
            options.against,
            options.tuned,
            base=options.base,
            base_python=options.base_python,
        )
        for plan in asked:
            say(f"{loaded.path}: {plan.task.problem.slug} {plan.task.pass_name}")
            if options.base and not options.judge_stored and not options.against and _is_settled(plan):
                yield unchanged(plan, str(loaded.path), measurer.environment, settings)
            else:
                yield run(plan, str(loaded.path), measurer, settings, say)


def _is_settled(plan: Plan) -> bool:
    """Whether there is nothing of the base to measure the config on disk against."""
    return plan.head in plan.contenders and BASE not in plan.contenders and BASE not in plan.guests


def _band(loaded: Loaded, profile: Profile) -> float:
    try:
        return parse_band(profile.gate.max_regression)
    except ValueError as error:
        field, line, column = loaded.locate("gate.max_regression")
        raise UsageError(f"{loaded.path}:{line}:{column}: {field}: {error}") from None
