"""Run the gate over profiles: rules first, then tuned files, then measurements where there is a device."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from attnctl import extras
from attnctl.bench.exit import exit_code, worst
from attnctl.bench.plan import DEFAULT, INCUMBENT
from attnctl.bench.result import Match
from attnctl.bench.session import Options, matches
from attnctl.errors import AttnctlError, ExitCode, UsageError
from attnctl.gate import tuned_files
from attnctl.gate.base import Base
from attnctl.gpu.names import gpu_names
from attnctl.gpu.protocol import Environment
from attnctl.profile.load import Loaded, load
from attnctl.profile.model import Profile
from attnctl.rules.check import check_loaded
from attnctl.rules.finding import Finding
from attnctl_kernels.contract import Candidate, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity

Say = Callable[[str], None]


class Measure(StrEnum):
    AUTO = "auto"  # kernels that need a GPU, where there is one
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class GateOptions:
    strict: bool = False
    measure: Measure = Measure.AUTO
    base: str | None = None  # a commit; None: the stored time, the default and the incumbent
    base_python: str | None = None  # an interpreter with that commit's packages; None: its configs on today's kernels
    judge_stored: bool = False  # the stored time, too
    device: str | None = None
    cycles: int = 50


@dataclass(slots=True)
class Gated:
    """What the gate found about one profile."""

    path: Path
    place: tuple[int, int] = (0, 0)  # of what the gate allows
    findings: list[Finding] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    not_measured: str = ""  # why; empty: it was
    error: AttnctlError | None = None  # what kept the gate from finishing
    strict: bool = False

    @property
    def failing(self) -> list[Finding]:
        return [each for each in self.findings if self.strict or each.severity is Severity.ERROR]

    @property
    def exit_code(self) -> ExitCode:
        codes = [exit_code(match) for match in self.matches]
        codes += [ExitCode.FINDINGS] if self.failing else []
        codes += [self.error.exit_code] if self.error else []
        return worst(codes)


def run(paths: Sequence[Path], options: GateOptions, say: Say) -> Iterator[Gated]:
    """One per profile, each as soon as it is done, then one for tuned files without a profile, if there are any.

    Raises:
        UsageError: the base is no commit, or its interpreter no program.
    """
    if options.base_python is not None:
        _check_python(options)
    with ExitStack() as stack:
        base = None
        if options.base is not None and paths:
            checkout = stack.enter_context(tempfile.TemporaryDirectory(prefix="attnctl-base-"))
            base = Base(options.base, Path(checkout))
            for path in {path.parent: path for path in paths}.values():  # of any repository, each with its own history
                base.check(path)
        for path in paths:
            yield _one(path, options, base, say)
    for folder in dict.fromkeys(path.parent for path in paths):
        if found := list(tuned_files.orphans(folder)):
            yield Gated(folder / "tuned", findings=found, not_measured="there is no profile", strict=options.strict)


def _check_python(options: GateOptions) -> None:
    if options.base is None:
        raise UsageError("--base-python goes with --base", "name the commit that is installed there: --base COMMIT")
    if shutil.which(str(options.base_python)) is None:
        raise UsageError(f"--base-python {options.base_python}: no such program", "name a Python that has the base")


def _one(path: Path, options: GateOptions, base: Base | None, say: Say) -> Gated:
    loaded = load(path)
    gated = Gated(path, findings=[*check_loaded(loaded).findings], strict=options.strict)
    if loaded.profile is None:
        gated.not_measured = "the profile has errors"
        return gated
    gated.place = loaded.locate("gate.max_regression")[1:]
    gated.findings += tuned_files.check(loaded)
    if any(each.severity is Severity.ERROR and each.code != tuned_files.CODE for each in gated.findings):
        gated.not_measured = "the profile breaks rules"
    else:
        gated.not_measured = _why_not(loaded.profile, options)
    if not gated.not_measured:
        try:
            gated.matches += matches(loaded, _bench_options(loaded, options, base), say)
        except AttnctlError as error:
            gated.error = error
    return gated


def _why_not(profile: Profile, options: GateOptions) -> str:
    """Why nothing is measured; empty: it is."""
    family = get_family(profile.family)
    if options.measure is Measure.NEVER:
        return "measuring is switched off"
    if not family.tunable:
        return f"{family.name} has rules only"
    if options.measure is Measure.ALWAYS:
        return ""
    if not family.on_gpu(profile.arch):
        return f"{family.name} needs no GPU: --measure always measures it on this CPU"
    absent = extras.missing(family.extra)
    return "no GPU is here" if not gpu_names() else f"{', '.join(absent)} not installed" if absent else ""


def _bench_options(loaded: Loaded, options: GateOptions, base: Base | None) -> Options:
    def of_base(task: Task, environment: Environment) -> Candidate | None:
        assert base is not None
        return base.candidate(loaded.path, task, environment.device_name)

    return Options(
        against=() if base else (DEFAULT, INCUMBENT),
        gate=True,
        cycles=options.cycles,
        cache="cold",
        device=options.device,
        base=of_base if base else None,
        base_python=options.base_python,
        judge_stored=options.judge_stored,
    )


def overall(gated: Sequence[Gated]) -> ExitCode:
    return worst(each.exit_code for each in gated)
