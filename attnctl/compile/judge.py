"""What a compiler's result means for the profile: nothing, a note, or findings at its config."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl.compile.plan import Kernel
from attnctl.gpu.protocol import Result
from attnctl.profile.load import Loaded
from attnctl.rules.finding import Finding
from attnctl.rules.form import FormRule
from attnctl.rules.form.compile import (
    compiler_died,
    compiler_hangs,
    does_not_compile,
    kernel_over_limit,
    kernel_spills,
)
from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Outcome

_REASON_CHARS = 300


def note_of(kernel: Kernel, result: Result) -> str:
    """Why there was nothing to compile; empty where there was something."""
    if result.outcome is Outcome.OK and result.compiled is None:
        return f"not compiled: {kernel.case.family} has nothing to compile ahead"
    return ""


def judge(loaded: Loaded, kernel: Kernel, result: Result, problem_count: int) -> Iterator[Finding]:
    """The findings, at the config of the pass, which names the problem where the profile has several."""
    case = kernel.case
    flat = loaded.family is not None and loaded.family.flat_config
    wanted = "config" if flat else f"config.{case.pass_name}"
    field, line, column = loaded.locate(wanted, kernel.indices[0], case.pass_name)
    several = problem_count > 1
    for rule, facts in _faults(kernel, result):
        finding = rule.finding(str(loaded.path), (line, column), field, *facts)
        yield replace(finding, problem=case.problem.slug if several else "", pass_name=case.pass_name)


def _faults(kernel: Kernel, result: Result) -> Iterator[tuple[FormRule, tuple[object, ...]]]:
    case = kernel.case
    name = f"the {case.pass_name} kernel of {case.problem.slug} ({kernel.candidate})"
    reason = result.reason[:_REASON_CHARS]
    if result.outcome is Outcome.OK:
        yield from _of_resources(name, str(case.arch), result)
    elif result.outcome is Outcome.TIMEOUT:
        yield compiler_hangs, (name, reason.removeprefix("deadline of ").partition(" ")[0])
    elif "compile" not in result.seconds:  # nobody was left to say how long it took
        yield compiler_died, (name, reason)
    else:
        yield does_not_compile, (name, reason)


def _of_resources(name: str, arch: str, result: Result) -> Iterator[tuple[FormRule, tuple[object, ...]]]:
    found = result.compiled.resources if result.compiled else {}
    limits = ARCHES.get(arch)
    if limits:
        for resource, limit, words in (
            ("smem_bytes", limits.smem_bytes, "bytes of shared memory"),
            ("registers", limits.thread_registers, "registers per thread"),
        ):
            if found.get(resource, 0) > limit:
                yield kernel_over_limit, (name, words, found[resource], limit, arch)
    if local_bytes := found.get("local_bytes", 0):
        yield kernel_spills, (name, local_bytes, found.get("registers", 0))
