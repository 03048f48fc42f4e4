"""Plain attention in PyTorch, and the faults of ``spec.Fault`` around it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from attnctl_kernels import masks, reference
from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, Mask, OutOfResources, Problem, Task

_OOM_BYTES = 2 << 30
_EATS_MEMORY = f"""
import time
taken = []
while len(taken) << 26 < {_OOM_BYTES}:
    taken.append(b"x" * (1 << 26))
    time.sleep(0.05)
"""
_LEAK_BYTES = 10_000_000
_FLAKY_EVERY = 20
_TAIL_TILE = 64

_latest: list[Call] = []  # that was launched in this process, as what kernels leave behind in memory they share
leaked: list[weakref.ref[Tensor]] = []  # what "leaks" has allocated in this process


class Call:
    def __init__(self, problem: Problem, inputs: Inputs, config: Mapping[str, object]) -> None:
        self.problem = problem
        self.inputs = inputs
        self.fault = str(config["fault"])
        self.delay_s = int(config["delay_us"]) / 1e6
        self.runs = 0
        self.buffers = _empty_outputs(problem, inputs)
        self.totals = {name: torch.zeros_like(each) for name, each in self.buffers.items()}
        classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, problem.seqlen_q, 1)
        self.seen = torch.from_numpy(classes[0] != masks.EMPTY).to(inputs.q.device)

    def run(self) -> None:
        self.beside_others = self.runs > 0 and _latest[-1] is not self
        _latest[:] = [self]
        self.runs += 1
        if self.delay_s:
            time.sleep(self.delay_s)
        FAULTS.get(self.fault, right)(self)

    def outputs(self) -> Mapping[str, Tensor]:
        return self.buffers

    def poison(self) -> None:
        for buffer in self.buffers.values():
            buffer.fill_(torch.nan)

    def results(self, mask: Mask | None = None, *, skip_unseen: bool = True, pad_to: int = 1) -> dict[str, Tensor]:
        """What a right kernel computes, or a kernel with another mask, that reads all keys, or pads them."""
        mask = mask or self.problem.mask
        q, k, v = self.inputs.q, self.inputs.k, self.inputs.v
        if skip_unseen:  # a weight of 0 times NaN is NaN: keys that nobody sees must not be read
            k, v = (torch.where(self.seen[:, None, None], each, 0) for each in (k, v))
        if padding := -k.shape[1] % pad_to:
            k, v = (torch.nn.functional.pad(each, (0, 0, 0, 0, 0, padding)) for each in (k, v))
        scale = self.problem.softmax_scale
        if self.inputs.dout is None:
            out, lse = reference.plain(q, k, v, mask, scale)
            return {"out": out, "lse": lse}
        dq, dk, dv = reference.plain_backward(q, k, v, self.inputs.dout, mask, scale)
        keys = self.inputs.k.shape[1]
        return {"dq": dq, "dk": dk[:, :keys], "dv": dv[:, :keys]}

    def write(self, results: Mapping[str, Tensor], rows: slice = slice(None)) -> None:
        for name, result in results.items():
            target, source = self.buffers[name], result
            if target.ndim == 4:
                target[:, rows] = source[:, rows]
            else:
                target[..., rows] = source[..., rows]


def right(call: Call) -> None:
    call.write(call.results())


def nan_fast(call: Call) -> None:
    call.poison()


def nan_blind_rows(call: Call) -> None:
    right(call)
    problem = call.problem
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, 1, problem.seqlen_k)
    call.buffers["out"][:, torch.from_numpy(classes[:, 0] == masks.EMPTY)] = torch.nan


def ignores_sparsity(call: Call) -> None:
    call.write(call.results(Mask()))


def reads_unseen(call: Call) -> None:
    call.write(call.results(skip_unseen=False))


def illegal(call: Call) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def device_assert(call: Call) -> None:
    call.inputs.q.flatten()[torch.tensor([call.inputs.q.numel()], device=call.inputs.q.device)]


def scribbles(call: Call) -> None:
    """Finds tensors like its output that somebody else holds: what a wild pointer does by chance."""
    right(call)
    gc.unfreeze()
    own = {id(each) for each in call.buffers.values()}
    for each in gc.get_objects():
        if type(each) is dict and "out" in each and isinstance(each["out"], Tensor) and id(each["out"]) not in own:
            each["out"][0, 0, 0, 0] += 1.0


def device_hang(call: Call) -> None:
    torch.cuda._sleep(1 << 50)


def slow_sparse(call: Call) -> None:
    time.sleep(0.01 if call.problem.mask.pattern == "dense" else 0.05)
    right(call)


def slow_dense(call: Call) -> None:
    time.sleep(0.02 if call.problem.mask.pattern == "dense" else 0)
    right(call)


def abort(call: Call) -> None:
    os.abort()


def orphan(call: Call) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)


def hang(call: Call) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    os.write(1, b"about to hang\n")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as a compiler would
    time.sleep(600)


def oom(call: Call) -> None:
    taken = []
    while sum(each.numel() for each in taken) < _OOM_BYTES:
        taken.append(torch.ones(128 << 20, dtype=torch.uint8))
        time.sleep(0.1)
    raise MemoryError(f"nobody stopped this at {_OOM_BYTES} bytes")


def memory_error(call: Call) -> None:
    torch.empty(1 << 60, dtype=torch.uint8)


def launch_refused(call: Call) -> None:
    raise OutOfResources("232449 bytes of shared memory, 232448 are available")


def raises_beside(call: Call) -> None:
    right(call)
    if call.beside_others:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def aborts_beside(call: Call) -> None:
    right(call)
    if call.beside_others:
        os.abort()


def wrong_beside(call: Call) -> None:
    right(call)
    if call.beside_others:
        wrong_row(call)


def scribbles_beside(call: Call) -> None:
    right(call)
    if call.beside_others:
        call.inputs.v[0, 0, 0, 0] += 1.0


def writes_first_half(call: Call) -> None:
    call.write(call.results(), slice(None, call.problem.seqlen_q // 2))


def writes_second_half(call: Call) -> None:
    call.write(call.results(), slice(call.problem.seqlen_q // 2, None))


def accumulates(call: Call) -> None:
    for name, result in call.results().items():
        call.buffers[name] += result


def accumulates_inside(call: Call) -> None:
    for name, result in call.results().items():
        call.totals[name] += result
    call.write(call.totals)


def flaky(call: Call) -> None:
    right(call)
    if call.runs % _FLAKY_EVERY == 0:
        for buffer in call.buffers.values():
            buffer[0, -1] = 1.0


def tail_zero_weight(call: Call) -> None:
    call.write(call.results(pad_to=_TAIL_TILE))


def writes_inputs(call: Call) -> None:
    right(call)
    call.inputs.k.mul_(0.5)


def wrong_row(call: Call) -> None:
    right(call)
    for buffer in call.buffers.values():
        buffer[-1, -1, -1] = 0.0


def prints(call: Call) -> None:
    os.write(1, b'{"reply": "result", "outcome": "ok"}\n' * 2000)
    right(call)


def leaks(call: Call) -> None:
    class Refusal(RuntimeError):
        def __init__(self, payload: Tensor) -> None:
            super().__init__("refused, and holding on to it")
            self.payload = payload
            self.myself = self

    payload = torch.ones(_LEAK_BYTES, dtype=torch.uint8, device=call.inputs.q.device)
    leaked.append(weakref.ref(payload))
    raise Refusal(payload)


FAULTS: dict[str, Callable[[Call], None]] = {
    each.__name__: each
    for each in (
        nan_fast,
        nan_blind_rows,
        ignores_sparsity,
        reads_unseen,
        illegal,
        device_assert,
        scribbles,
        device_hang,
        slow_sparse,
        slow_dense,
        abort,
        orphan,
        hang,
        oom,
        memory_error,
        launch_refused,
        raises_beside,
        aborts_beside,
        wrong_beside,
        scribbles_beside,
        writes_first_half,
        writes_second_half,
        accumulates,
        accumulates_inside,
        flaky,
        tail_zero_weight,
        writes_inputs,
        wrong_row,
        prints,
        leaks,
    )
}


class FaultyLauncher:
    framework = "torch"
    compiles = True

    def warm_up(self) -> None:
        if os.environ.get("FAULTY_THREAD"):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

    def available(self, arch: str | None) -> str | None:
        return None

    def versions(self) -> dict[str, str]:
        return {"faulty": "1"}

    def compile(self, task: Task, candidate: Candidate) -> Compiled | None:
        match candidate.config["fault"]:
            case "compile_error":
                raise CompileError("tile 7 is not supported")
            case "compile_abort":
                os.abort()
            case "compile_hang":
                time.sleep(600)
            case "compile_disk_full":
                Path("/dev/full").write_text("cubin")
            case "compile_oom":
                subprocess.run([sys.executable, "-c", _EATS_MEMORY], check=True)
                raise MemoryError(f"nobody stopped this at {_OOM_BYTES} bytes")
        return Compiled(seconds=0.0, binary=candidate.key)

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> Call:
        if candidate.config["fault"] == "bind_disk_full":
            Path("/dev/full").write_text("cubin")
        if candidate.config["fault"] == "bind_error":
            raise ValueError("tile 7 does not divide 128\nsecond line")
        call = Call(task.problem, inputs, candidate.config)
        if candidate.config["fault"] == "wrong_shape":
            call.buffers["out"] = call.buffers["out"].transpose(1, 2).contiguous()
            call.fault = "nan_fast"
        return call


def _empty_outputs(problem: Problem, inputs: Inputs) -> dict[str, Tensor]:
    if inputs.dout is not None:
        return {"dq": torch.empty_like(inputs.q), "dk": torch.empty_like(inputs.k), "dv": torch.empty_like(inputs.v)}
    out = inputs.q.new_empty(*inputs.q.shape[:3], problem.head_dim_v)
    lse = torch.empty(problem.batch_size, problem.num_heads_q, problem.seqlen_q, device=inputs.q.device)
    return {"out": out, "lse": lse}


LAUNCHER = FaultyLauncher()
