"""Compile FlexAttention's kernels through inductor, and call them. Worker processes only.

`compile` generates code and device code without a GPU; `bind` loads what is on disk, and compiles what is not.
"""

from __future__ import annotations

import importlib
import math
import os
import shutil
import time
from collections.abc import Mapping
from importlib import metadata, util

import torch
from torch import Tensor
from torch._inductor.codecache import torch_key

from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, OutOfResources, Task
from attnctl_kernels.flex.launch.block_mask import FlexMask, flex_mask
from attnctl_kernels.flex.launch.cubins import compile_kernels
from attnctl_kernels.flex.launch.graph import OPERANDS, by_head
from attnctl_kernels.flex.launch.module import Module
from attnctl_kernels.flex.launch.source import generated
from attnctl_kernels.flex.launch.target import described
from attnctl_kernels.flex.spec import FAMILY, OLDEST_RUN

_LN_2 = math.log(2)


class FlexCall:
    """Generated code with its arguments. Reads the live inputs through views, with heads before rows."""

    def __init__(self, module: Module, operands: list[Tensor], arrays: list[Tensor]) -> None:
        self._module = module
        self._arguments = [*operands, *arrays]

    def run(self) -> None:
        try:
            self._module.run(self._arguments)
        except RuntimeError as error:
            if "OutOfResources" in str(error):
                raise OutOfResources(str(error).partition("\n")[0]) from error
            raise

    def poison(self) -> None:
        self._module.poison()


class ForwardCall(FlexCall):
    def outputs(self) -> Mapping[str, Tensor]:
        out, *lse = self._module.outputs
        found = {"out": by_head(out)}
        if lse:
            found["lse"] = lse[0] * _LN_2  # the kernel's is to base 2
        return found


class BackwardCall(FlexCall):
    """The kernel takes the log-sum-exp as its forward pass leaves it, to base 2.

    That copy is made anew when the live one has changed, so that no timed run has to.
    """

    def __init__(self, module: Module, inputs: Inputs, operands: list[Tensor], arrays: list[Tensor]) -> None:
        self._lse, self._copied = inputs.lse, -1
        self._lse_2 = torch.empty_like(inputs.lse)
        operands[OPERANDS["backward"].index("lse")] = self._lse_2
        super().__init__(module, operands, arrays)

    def run(self) -> None:
        version = self._lse._version  # noqa: SLF001 - what autograd, too, goes by to see changes in place
        if version != self._copied:
            self._copied = version
            torch.mul(self._lse, 1 / _LN_2, out=self._lse_2)
        super().run()

    def outputs(self) -> Mapping[str, Tensor]:
        return dict(zip(("dq", "dk", "dv"), map(by_head, self._module.outputs), strict=True))


class FlexLauncher:
    framework = "torch"
    compiles = True

    def warm_up(self) -> None:
        """Inductor's lowerings and templates, and the hash of its sources, which the first candidate would wait for."""
        importlib.import_module("torch._inductor.kernel.flex.flex_attention")
        torch_key()

    def available(self, arch: str | None) -> str | None:
        """None if the kernel can run here; otherwise one sentence saying what is missing."""
        if torch.__version__ < OLDEST_RUN:
            return f"attnctl runs FlexAttention of torch {OLDEST_RUN} and later, not of {torch.__version__}"
        if arch is None:
            return _missing_on_cpu()
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        if util.find_spec("triton") is None:
            return "Triton is not installed, which PyTorch for CUDA brings: pip install triton"
        major, minor = torch.cuda.get_device_capability()
        return None if arch == f"sm_{major}{minor}" else f"this device is sm_{major}{minor}, not {arch}"

    def versions(self) -> dict[str, str]:
        """PyTorch, Triton, and the hash of the templates."""
        triton = {"triton": metadata.version("triton")} if util.find_spec("triton") else {}
        return {"torch": torch.__version__, **triton, **FAMILY.sources()}

    def compile(self, task: Task, candidate: Candidate) -> Compiled | None:
        """Generate code, and device code of it; C++ is left to the machine that runs it."""
        if task.arch is None:
            return None
        if util.find_spec("triton") is None:
            raise ModuleNotFoundError(name="triton")
        begun = time.perf_counter()
        with described(task.arch):
            code, cached = generated(task, candidate, _mask(task, candidate), torch.device("cuda:0"))
            binary, resources = compile_kernels(code, task.arch)
        return Compiled(
            seconds=time.perf_counter() - begun,
            # The block lists are not part of the device code, and decide the time.
            binary=f"{binary}-{candidate.sparse_block}",
            resources=resources,
            cached=cached,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> FlexCall:
        mask, device = _mask(task, candidate), inputs.q.device
        if (task.arch is None) != (device.type == "cpu"):
            raise CompileError(f"a call for {task.arch or 'the CPU'} is not one for {device}: `arch` decides")
        code, _ = generated(task, candidate, mask, device)
        module = Module(code, device)
        operands = [getattr(inputs, name) for name in OPERANDS[task.pass_name]]
        operands = [by_head(each) if each.ndim == 4 else each for each in operands]
        arrays = [torch.from_numpy(array).to(device) for array in (*mask.lists.values(), *mask.tables)]
        if task.pass_name == "forward":  # noqa: S105 - not a password
            return ForwardCall(module, operands, arrays)
        return BackwardCall(module, inputs, operands, arrays)


def _mask(task: Task, candidate: Candidate) -> FlexMask:
    block = candidate.sparse_block or FAMILY.sparse_block(task.problem, task.pass_name, candidate.config)
    return flex_mask(task.problem, block)


def _missing_on_cpu() -> str | None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"FlexAttention on the CPU is compiled by {compiler}, which is not installed (CXX names another)"
    return None


LAUNCHER = FlexLauncher()
