"""Bind candidates from stdin and launch each once as a measuring worker would, but with the CUDA driver left out.

Tensors are fake. What the launcher hands to the driver goes to stdout, with every process that was started, every
compiler that was called and every launcher that was timed on the way there.
"""

import importlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import torch
from torch._inductor import compile_fx
from torch._inductor.runtime import static_triton_launcher, triton_heuristics
from torch._subclasses.fake_tensor import FakeTensorMode

from attnctl_kernels.contract import Candidate, Inputs, Task
from attnctl_kernels.flex.launch import LAUNCHER
from attnctl_kernels.flex.launch.graph import OPERANDS
from attnctl_kernels.flex.launch.target import described

STARTS_A_PROCESS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"}
triton_compiler = importlib.import_module("triton.compiler.compiler")


class Driver:
    """Notes what it should load and launch."""

    def __init__(self):
        self.loaded, self.launched = [], []

    def _load_kernel(self, path, name, shared, device):
        assert Path(path).read_bytes().startswith(b"\x7fELF")
        self.loaded.append(name)
        handles = (1, 100, 0)  # function, registers, spills
        return handles if torch.__version__ < "2.13" else (1, *handles)

    def _launch_kernel(self, _function, *grid_and_more):
        *grid, num_warps, shared, _types, _arguments, _stream = grid_and_more
        self.launched.append({"grid": grid, "num_warps": num_warps, "shared": shared})

    def _unload_kernel(self, module):
        pass


class Nowhere:
    """A device guard."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def inputs(task):
    problem = task.problem

    def rows(seqlen, heads, dim):
        dtype = getattr(torch, problem.dtype)
        return torch.empty(problem.batch_size, seqlen, heads, dim, dtype=dtype, device="cuda:0")

    q = rows(problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = rows(problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    v = rows(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v)
    out = rows(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v)
    lse = torch.empty(problem.batch_size, problem.num_heads_q, problem.seqlen_q, device="cuda:0")
    values = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": out}
    return Inputs(**{name: values[name] for name in OPERANDS[task.pass_name]})


def noting(calls, name, function):
    def call(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    return call


def measured(task, candidate, processes):
    driver, compilers, timed = Driver(), [], []
    before = len(processes)
    replaced = (
        (static_triton_launcher.StaticallyLaunchedCudaKernel, "C_impl", driver),
        (triton_heuristics.CachingAutotuner, "bench", lambda _self, launcher, *_, **__: timed.append(launcher) or 1.0),
        (importlib.import_module("torch._dynamo.device_interface"), "DeviceGuard", Nowhere),
        (torch.cuda, "_DeviceGuard", Nowhere),
        (torch.cuda, "set_device", lambda _: None),
        (torch._C, "_cuda_getCurrentRawStream", lambda _: 0),
        (triton_compiler.ASTSource, "make_ir", noting(compilers, "triton", triton_compiler.ASTSource.make_ir)),
        (compile_fx, "fx_codegen_and_compile", noting(compilers, "inductor", compile_fx.fx_codegen_and_compile)),
    )
    with ExitStack() as stack:
        for target, name, value in replaced:
            stack.enter_context(mock.patch.object(target, name, value, create=True))
        stack.enter_context(described(task.arch))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        call = LAUNCHER.bind(task, candidate, inputs(task))
        call.run()
    return {
        "loaded": driver.loaded,
        "launched": driver.launched,
        "processes": processes[before:],
        "compilers": compilers,
        "timed": len(timed),
    }


if __name__ == "__main__":
    LAUNCHER.warm_up()
    started = []
    sys.addaudithook(lambda event, _: started.append(event) if event in STARTS_A_PROCESS else None)
    work = [(Task.model_validate(task), Candidate.model_validate(each)) for task, each in json.load(sys.stdin)]
    json.dump([measured(*each, started) for each in work], sys.stdout)
