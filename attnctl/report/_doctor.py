"""The text of `attnctl doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.machine import Ability, Machine
from attnctl.report._table import table
from attnctl.words import counted


def lines(machine: Machine, families: Sequence[Ability]) -> Iterator[str]:
    yield f"attnctl {machine.attnctl}, Python {machine.python}, {machine.system}, {counted(machine.cpus, 'core')}"
    for gpu in machine.gpus:
        yield f"GPU {gpu.index}: {gpu.name} ({gpu.arch}), {gpu.memory_mib} MiB, driver {gpu.driver}"
    if machine.no_gpu:
        yield f"no GPU: {machine.no_gpu}"
    if machine.compiled_anew:
        folders = " ".join(machine.compiled_anew)
        yield "slow starts: packages have no bytecode, and Python writes none: each worker compiles them anew"
        yield f"to keep it: python -m compileall -q {folders}"
    yield ""
    yield from table([("family", "version", "rules", "tune and bench here"), *map(_row, families)], right=(2,))
    if fixes := sorted({each.fix for each in families if each.fix}):
        yield ""
        yield from (f"to add what is missing: {fix}" for fix in fixes)


def _row(ability: Ability) -> tuple[str, str, str, str]:
    here = f"yes, on {ability.device}" if ability.device else f"no: {ability.reason}"
    return ability.family, ability.versions[-1] if ability.versions else "-", str(ability.rules), here
