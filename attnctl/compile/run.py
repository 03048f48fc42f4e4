"""Compile what profiles need in workers that may die, and turn what became of it into findings and notes."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnctl.compile.judge import judge, note_of
from attnctl.compile.plan import Kernel, Plan, by_target, kernel_key, plan
from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello, Result
from attnctl.profile.load import Loaded
from attnctl.rules.check import Report
from attnctl.rules.finding import Finding
from attnctl.state import state_dir

Results = dict[Hashable, Result]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel that compiled, or did not; ``problems`` of the profile run it."""

    kernel: Kernel
    result: Result

    @property
    def problems(self) -> int:
        return len(self.kernel.indices)


@dataclass(frozen=True, slots=True)
class Compilation:
    """What compiling one profile told. ``notes`` say what was not compiled, and why; reports have the findings, too."""

    kernels: tuple[CompiledKernel, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """``jobs``: None for one worker per core."""

    jobs: int | None
    deadline_s: float


def compile_all(checked: Sequence[tuple[Loaded, Report]], settings: Settings, say: Say) -> list[Report]:
    """The reports, with what compiling found.

    Raises:
        MissingExtra: a package that a kernel is compiled with is not installed.
        Unavailable: no worker can be started.
    """
    plans = [_plan(loaded, report) for loaded, report in checked]
    results: Results = {}
    for (family, arch), kernels in by_target([each for one in plans for each in one.kernels]):
        results |= _compiled(Hello(family=family, arch=arch, device="none"), kernels, settings, say)
    return [
        _with_compilation(loaded, report, one, results) for (loaded, report), one in zip(checked, plans, strict=True)
    ]


def _plan(loaded: Loaded, report: Report) -> Plan:
    return Plan() if report.profile is None else plan(report.profile, loaded.seq_lens)


def _compiled(hello: Hello, kernels: Sequence[Kernel], settings: Settings, say: Say) -> Results:
    jobs = min(settings.jobs or len(os.sched_getaffinity(0)), len(kernels))
    workers = "1 worker" if jobs == 1 else f"{jobs} workers"
    target = f"{hello.family} on {hello.arch}" if hello.arch else hello.family
    say(f"compiling {len(kernels)} kernel{'s' if len(kernels) > 1 else ''} of {target} in {workers}")
    with CompilePool(hello, jobs, Deadlines(compile=settings.deadline_s), state_dir()) as pool:
        compiling = {kernel_key(each.case): pool.submit(each.task, each.candidate) for each in kernels}
        return {key: each.result() for key, each in compiling.items()}


def _with_compilation(loaded: Loaded, report: Report, planned: Plan, results: Results) -> Report:
    kernels: list[CompiledKernel] = []
    notes = dict.fromkeys(_notes(report, planned))
    findings: list[Finding] = []
    for kernel in planned.kernels:
        result = results[kernel_key(kernel.case)]
        if note := note_of(kernel, result):
            notes[note] = None
            continue
        kernels.append(CompiledKernel(kernel, result))
        findings += judge(loaded, kernel, result, report.problem_count)
    compilation = Compilation(tuple(kernels), tuple(notes), tuple(findings))
    return replace(report, findings=(*report.findings, *findings), compilation=compilation)


def _notes(report: Report, planned: Plan) -> Iterator[str]:
    if report.profile is None:
        yield "not compiled: the file has faults"
        return
    if planned.refused:
        yield f"not compiled: {planned.refused} of {planned.count} cases, which have errors"
    yield from (f"not compiled: {reason}" for reason in planned.notes)
