"""Compile the kernels ahead, and bind them to the tensors of a task. Worker processes only."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, OutOfResources, Problem, Task
from attnctl_kernels.fa4.cubin import read_cubin
from attnctl_kernels.fa4.failures import is_out_of_resources, one_line
from attnctl_kernels.ranker.sources import SOURCES, sources_hash

ARCH = "sm_90"
MODULES = {"nvidia-cutlass-dsl": "cutlass", "apache-tvm-ffi": "tvm_ffi"}


def missing_packages() -> list[str]:
    return [package for package, module in MODULES.items() if util.find_spec(module) is None]


class ForwardCall:
    """The compiled kernel with its arguments made once."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...], out: Any, lse: Any) -> None:
        self._kernel = kernel
        self._arguments = arguments
        self._outputs = {"out": out, "lse": lse}

    def run(self) -> None:
        try:
            self._kernel(*self._arguments)
        except Exception as error:
            if is_out_of_resources(error):
                raise OutOfResources(one_line(error)) from error
            raise

    def outputs(self) -> Mapping[str, Any]:
        return self._outputs

    def poison(self) -> None:
        for output in self._outputs.values():
            output.fill_(math.nan)


class RankerLauncher:
    framework = "torch"
    compiles = True

    def warm_up(self) -> None:
        """The compiler takes seconds to import, which the first candidate would wait for."""
        if not missing_packages():
            from attnctl_kernels.ranker.sm90 import build  # noqa: F401, PLC0415

    def available(self, arch: str | None) -> str | None:
        if missing := missing_packages():
            raise ModuleNotFoundError(name=missing[0])
        if arch not in (None, ARCH):
            return f"ranker runs on {ARCH} only, not on {arch}"
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        major, minor = torch.cuda.get_device_capability()
        return None if major == 9 else f"ranker runs on {ARCH}; this device is sm_{major}{minor}"

    def versions(self) -> dict[str, str]:
        installed = {package: metadata.version(package) for package in MODULES if package not in missing_packages()}
        return {**installed, SOURCES: sources_hash()}

    def compile(self, task: Task, candidate: Candidate) -> Compiled:
        begun = time.perf_counter()
        path, cached = _object(task.problem, candidate)
        cubin = read_cubin(path.read_bytes())
        return Compiled(
            seconds=time.perf_counter() - begun,
            binary=cubin.binary if cubin else None,
            resources=cubin.resources if cubin else {},
            cached=cached,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> ForwardCall:
        problem = task.problem
        path, _ = _object(problem, candidate)
        from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass

        kernel, device = build.load(path), inputs.q.device
        history = problem.seqlen_k if problem.mask.history_len is None else problem.mask.history_len
        rows = [[0, history, history, problem.seqlen_k]] * problem.batch_size
        bounds = torch.tensor(rows, dtype=torch.int32, device=device)
        out = torch.empty_like(inputs.q)
        lse = inputs.q.new_empty(problem.batch_size, problem.num_heads_q, problem.seqlen_q, dtype=torch.float32)
        scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)
        num_sms = torch.cuda.get_device_properties(device).multi_processor_count
        return ForwardCall(kernel, (inputs.q, inputs.k, inputs.v, out, lse, bounds, scale, num_sms), out, lse)


def _object(problem: Problem, candidate: Candidate) -> tuple[Path, bool]:
    if missing := missing_packages():
        raise ModuleNotFoundError(name=missing[0])
    from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass

    folder = Path(os.environ.get("ATTNCTL_CACHE_DIR") or ".attnctl/cache") / "ranker"
    try:
        return build.forward_object(build.forward_traits(problem.head_dim, problem.dtype, candidate.config), folder)
    except Exception as error:
        raise CompileError(one_line(error)) from error


LAUNCHER = RankerLauncher()
