"""What `validate --compile` adds to a report: a line per kernel, notes, and their form in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attnctl_kernels.arch import ARCHES, Arch
from attnctl_kernels.contract import Compiled

if TYPE_CHECKING:
    from attnctl.compile.run import CompiledKernel
    from attnctl.rules.check import Report


def lines(report: Report) -> Iterator[str]:
    """Without the path: for people, in every format that has room for notes. Findings say what did not compile."""
    if report.compilation is not None:
        yield from (_line(each, each.result.compiled) for each in report.compilation.kernels if each.result.compiled)
        yield from report.compilation.notes


def as_json(report: Report) -> list[dict[str, Any]]:
    """One object per kernel."""
    return [_as_dict(str(report.path), each) for each in report.compilation.kernels] if report.compilation else []


def notes(report: Report) -> list[dict[str, str]]:
    return [{"path": str(report.path), "note": each} for each in report.compilation.notes] if report.compilation else []


def _line(each: CompiledKernel, compiled: Compiled) -> str:
    case = each.kernel.case
    served = f" (and {each.problems - 1} more)" if each.problems > 1 else ""
    facts = [*_resources(compiled.resources, ARCHES.get(str(case.arch)))]
    facts.append("from the cache" if compiled.cached else f"{compiled.seconds:.1f} s")
    return f"compiled: {case.pass_name} {case.problem.slug}{served}: {each.kernel.candidate}: {', '.join(facts)}"


def _resources(found: Mapping[str, int], arch: Arch | None) -> Iterator[str]:
    limit = f" of {arch.smem_bytes}" if arch else ""
    for name, words in (
        ("registers", "registers"),
        ("local_bytes", "bytes of local memory"),
        ("stack_bytes", "bytes of stack"),
        ("smem_bytes", f"bytes of shared memory{limit}"),
    ):
        if name in found:
            yield f"{found[name]} {words}"


def _as_dict(path: str, each: CompiledKernel) -> dict[str, Any]:
    case, result, compiled = each.kernel.case, each.result, each.result.compiled
    return {
        "path": path,
        "family": case.family,
        "arch": case.arch,
        "pass": case.pass_name,
        "problem": case.problem.slug,
        "problems": each.problems,
        "config": dict(case.config),
        "sparse_block": list(case.sparse_block) if case.sparse_block else None,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "resources": dict(compiled.resources) if compiled else {},
        "seconds": compiled.seconds if compiled else None,
        "cached": compiled.cached if compiled else False,
    }
