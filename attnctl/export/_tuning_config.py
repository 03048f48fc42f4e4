"""A ``TuningConfig`` as JAX's kernels and the ranker's take it."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.export import Export
from attnctl.export._code import call, table
from attnctl.profile.decision import Decision
from attnctl_kernels.pallas_mgpu.spec import TuningConfig

ENTRY = "pipeline_emitter"  # says which function is called, and is no field upstream
MACHINE = "cuda_runtime"  # says where it is compiled, likewise
FIELDS = tuple(name for name in TuningConfig.model_fields if name not in {ENTRY, MACHINE})


def of(decision: Decision) -> str:
    """``causal`` is a fact of the mask here and a field there."""
    config = decision.candidate.config
    arguments = {name: config[name] for name in FIELDS if config.get(name) is not None}
    if decision.task.problem.mask.pattern == "causal":
        arguments["causal"] = True
    return call("TuningConfig", arguments)


def tables(export: Export) -> Iterator[str]:
    """One config serves both passes: the backward blocks are fields of their own, so the last pass knows most."""
    last = export.decisions[-1].task.pass_name
    yield from table("TUNING", [(each, of(each)) for each in export.of_pass(last)])
