"""Compile the kernels ahead, and bind them to the tensors of a task. Worker processes only."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, OutOfResources, Problem, Task
from attnctl_kernels.fa4.cubin import read_cubin
from attnctl_kernels.fa4.failures import is_out_of_resources, one_line
from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.ranges import ranges
from attnctl_kernels.ranker.sources import SOURCES, sources_hash
from attnctl_kernels.ranker.spec import by_ranges, tile_count

ARCH = "sm_90"
MODULES = {"nvidia-cutlass-dsl": "cutlass", "apache-tvm-ffi": "tvm_ffi"}


def missing_packages() -> list[str]:
    return [package for package, module in MODULES.items() if util.find_spec(module) is None]


class KernelCall:
    """The compiled kernel with its arguments made once; ``scratch`` may hold anything when it runs."""

    def __init__(
        self, kernel: Any, arguments: tuple[Any, ...], outputs: Mapping[str, Any], scratch: Sequence[Any] = ()
    ) -> None:
        self._kernel = kernel
        self._arguments = arguments
        self._outputs = outputs
        self._scratch = scratch

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
        for buffer in (*self._outputs.values(), *self._scratch):
            buffer.fill_(math.nan)


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
        path, cached = _object(task, candidate)
        cubin = read_cubin(path.read_bytes())
        return Compiled(
            seconds=time.perf_counter() - begun,
            binary=cubin.binary if cubin else None,
            resources=cubin.resources if cubin else {},
            cached=cached,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> KernelCall:
        problem = task.problem
        path, _ = _object(task, candidate)
        if task.pass_name == "backward":  # noqa: S105 - not a password
            return _bind_backward(problem, candidate, path, inputs)
        from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass

        kernel, device = build.load(path), inputs.q.device
        bounds = _bounds(problem, device)
        order = None
        if candidate.config["schedule"] == "longest_first":
            order = torch.empty(tile_count(problem, candidate.config), dtype=torch.int32, device=device)
        out = torch.empty_like(inputs.q)
        lse = inputs.q.new_empty(problem.batch_size, problem.num_heads_q, problem.seqlen_q, dtype=torch.float32)
        scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)
        num_sms = torch.cuda.get_device_properties(device).multi_processor_count
        arguments = (inputs.q, inputs.k, inputs.v, out, lse, bounds, order, scale, None, num_sms)
        return KernelCall(kernel, arguments, {"out": out, "lse": lse})


def _bind_backward(problem: Problem, candidate: Candidate, path: Path, inputs: Inputs) -> KernelCall:
    outputs = {name: torch.empty_like(x) for name, x in (("dq", inputs.q), ("dk", inputs.k), ("dv", inputs.v))}
    scratch = backward_call.scratch(inputs.q, int(candidate.config["tile_m"]))
    bounds, spans = _bounds(problem, inputs.q.device), None
    if by_ranges(problem):
        scratch = *scratch, backward_call.spans(inputs.k)
        spans = scratch[-1].view(torch.int32)
    scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)
    given = (inputs.q, inputs.k, inputs.v, inputs.out, inputs.dout, inputs.lse)
    arguments = (*given, None, *outputs.values(), *scratch[:2], bounds, spans, scale, None)
    return KernelCall(backward_call.load(path), arguments, outputs, scratch)


def _bounds(problem: Problem, device: torch.device) -> torch.Tensor:
    """What rows see, as the kernels take it."""
    if by_ranges(problem):
        table = torch.from_numpy(ranges(problem.mask, problem.seqlen_q, problem.seqlen_k)).to(device)
        return table.expand(problem.batch_size, -1, -1)
    history = problem.seqlen_k if problem.mask.history_len is None else problem.mask.history_len
    each = [0, history, history, problem.seqlen_k]
    return torch.tensor([each] * problem.batch_size, dtype=torch.int32, device=device)


def _object(task: Task, candidate: Candidate) -> tuple[Path, bool]:
    if missing := missing_packages():
        raise ModuleNotFoundError(name=missing[0])
    from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass

    folder = kernel_folder()
    head_dim, dtype, config = task.problem.head_dim, task.problem.dtype, candidate.config
    try:
        if task.pass_name == "backward":  # noqa: S105 - not a password
            return backward_call.kernel_object(head_dim, dtype, config, folder, ranges=by_ranges(task.problem))
        traits = build.forward_traits(head_dim, dtype, config, ranges=by_ranges(task.problem))
        return build.forward_object(traits, folder)
    except Exception as error:
        raise CompileError(one_line(error)) from error


LAUNCHER = RankerLauncher()
