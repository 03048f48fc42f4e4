"""Lower, compile and call JAX's Pallas Mosaic GPU attention. Worker processes only.

A call is one XLA program: the kernel, or the two kernels of the backward pass, with what a training step runs around
them. Upstream applies no softmax scale, so queries are multiplied before and their gradient after; its LSE counts in
powers of two. Outputs are donated and written again by the next run, so that a call owns its buffers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import metadata, util
from typing import Any

from attnctl_kernels.contract import (
    TARGET_VARIABLE,
    Candidate,
    Compiled,
    CompileError,
    Inputs,
    OutOfResources,
    Problem,
    Task,
    fingerprint,
)

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch's tensors need memory, too
if TARGET_VARIABLE in os.environ:
    os.environ["JAX_PLATFORMS"] = "cpu"  # a compile worker: JAX would look for a GPU, and complain that there is none

import jax
import jax.numpy as jnp
import torch
from jax.experimental.pallas.ops.gpu import attention_mgpu
from jax.export import Exported

from attnctl_kernels.pallas_mgpu import exported

exported.keep_compiled_programs()

ARCH = "sm_90"
LOG2_E = math.log2(math.e)
_PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin")
_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
_NAMES = {  # inputs and outputs of each pass
    "forward": (("q", "k", "v"), ("out", "lse")),
    "backward": (("q", "k", "v", "out", "lse", "dout"), ("dq", "dk", "dv")),
}
_FIELDS = tuple(each.name for each in dataclasses.fields(attention_mgpu.TuningConfig) if each.name != "causal")
_TOO_LARGE = "exceeds available shared memory"

Arrays = tuple[jax.Array, ...]
Program = Callable[[Arrays, Arrays], Arrays]


class PallasCall:
    """A compiled program on its inputs, with outputs that go round: each run writes over those of the last."""

    def __init__(
        self, program: Callable[..., Any], inputs: tuple[Any, ...], outputs: dict[str, Any], lse_unit: float
    ) -> None:
        self._program = program
        self._lse_unit = lse_unit
        self._inputs = inputs
        self._names = tuple(outputs)
        self._outputs = tuple(outputs.values())

    def run(self) -> None:
        self._outputs = self._program(self._inputs, self._outputs)

    def outputs(self) -> Mapping[str, Any]:
        outputs = dict(zip(self._names, self._outputs, strict=True))
        if "lse" in outputs and self._lse_unit != 1:
            outputs["lse"] = outputs["lse"] * self._lse_unit
        return outputs

    def poison(self) -> None:
        self._outputs = _filled_with_nan(self._outputs)


class PallasLauncher:
    """Of JAX's kernels; a family of other kernels says what is different."""

    framework = "jax"
    compiles = True
    family = "pallas_mgpu"
    lse_unit = 1 / LOG2_E  # of the LSE that the program gives: JAX counts in powers of two

    def warm_up(self) -> None:
        """This module imports all that is needed."""

    def available(self, arch: str | None) -> str | None:
        """None if JAX can use a Hopper GPU here; otherwise one sentence saying what is missing.

        PyTorch is asked, because JAX would open the device, and then be listed among the processes that disturb it.
        """
        if not any(map(util.find_spec, _PLUGINS)):
            return "JAX is installed without CUDA: pip install 'jax[cuda13]'"
        if arch not in {None, ARCH}:
            return f"attnctl runs {self.family} on {ARCH} only, not on {arch}"
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        major, minor = torch.cuda.get_device_capability()
        if f"sm_{major}{minor}" != ARCH:
            return f"{self.family} is tuned on {ARCH}; this device is sm_{major}{minor}"
        return None

    def versions(self) -> dict[str, str]:
        """Installed versions, and a hash of the kernels' sources."""
        installed = {each.name: each.version for each in metadata.distributions() if each.name in _PACKAGES}
        return dict(sorted(installed.items())) | self.sources()

    def sources(self) -> dict[str, str]:
        text = inspect.getsource(attention_mgpu).encode()
        return {"attention_mgpu-sources": hashlib.sha256(text).hexdigest()[:16]}

    def program(self, task: Task, candidate: Candidate) -> Program:
        """Of inputs, and of the outputs whose memory the new ones take.

        Raises:
            CompileError: the kernel takes no such config.
        """
        if attention_mgpu.cuda_versions is None:  # a JAX without CUDA; the kernel only asks whether causal masks work
            attention_mgpu.cuda_versions = TargetVersions
        return _program(task, candidate)

    def compile(self, task: Task, candidate: Candidate) -> Compiled:
        """Lower to Mosaic GPU's own code, where nearly all that can go wrong does, and leave that on disk."""
        begun = time.perf_counter()
        program, cached = self._lowered(task, candidate)
        return Compiled(
            seconds=time.perf_counter() - begun,
            binary=hashlib.sha256(exported.code(program).encode()).hexdigest(),
            cached=cached,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> PallasCall:
        input_names, output_names = _NAMES[task.pass_name]
        arrays, shapes = tuple(getattr(inputs, name) for name in input_names), _shapes(task.problem)
        lowered, _ = self._lowered(task, candidate)
        program = jax.jit(lowered.call, donate_argnums=1, keep_unused=True)
        with _failures():
            compiled = program.lower(arrays, tuple(shapes[name] for name in output_names)).compile()
        device = arrays[0].device
        outputs = {name: jnp.empty_like(shapes[name], device=device) for name in output_names}
        return PallasCall(compiled, arrays, outputs, self.lse_unit)

    def lower(self, task: Task, candidate: Candidate) -> Exported:
        """A candidate's program, lowered now.

        Raises:
            CompileError: tracing or lowering failed.
            OutOfResources: a kernel needs more shared memory than there is.
        """
        program, shapes = self.program(task, candidate), _shapes(task.problem)
        with _failures():
            return exported.lowered(program, *(tuple(map(shapes.get, names)) for names in _NAMES[task.pass_name]))

    def _lowered(self, task: Task, candidate: Candidate) -> tuple[Exported, bool]:
        """From disk, or else lowered now and kept there; and whether it was there."""
        key = fingerprint([task.fingerprint, candidate.key, self._made_of])
        found = exported.read(key)
        program = found or self.lower(task, candidate)
        if not found:
            exported.write(key, program)
        return program, bool(found)

    @cached_property
    def _made_of(self) -> list[Any]:
        """What else a program depends on: JAX, the kernels, and the launchers around them."""
        return [self.versions(), *(inspect.getsource(sys.modules[each.__module__]) for each in type(self).mro()[:-1])]


def _program(task: Task, candidate: Candidate) -> Program:
    problem, config = task.problem, candidate.config
    entry = attention_mgpu.attention
    if config.get("pipeline_emitter"):
        entry = attention_mgpu.attention_with_pipeline_emitter
    given = {name: config[name] for name in _FIELDS if config.get(name) is not None}
    try:
        tuning = attention_mgpu.TuningConfig(**given, causal=problem.mask.pattern == "causal")
    except ValueError as error:
        raise CompileError(_first_line(error)) from error
    scaled = partial(_scaled, scale=scale_of(problem))

    def forward(inputs: Arrays, _outputs: Arrays) -> Arrays:
        q, k, v = inputs
        out, (lse,) = entry(scaled(q), k, v, tuning, save_residuals=True)
        return out, lse

    def backward(inputs: Arrays, _outputs: Arrays) -> Arrays:
        q, k, v, out, lse, dout = inputs
        residuals = (scaled(q), k, v, out, lse * LOG2_E)
        dq, dk, dv = attention_mgpu.attention.bwd(tuning, False, residuals, dout)
        return scaled(dq), dk, dv

    return {"forward": forward, "backward": backward}[task.pass_name]


def _scaled(x: jax.Array, scale: float) -> jax.Array:
    """Rounded once, after the multiplication: in float16 the scale itself would be off by up to 5e-4."""
    return x if scale == 1 else (x.astype(jnp.float32) * scale).astype(x.dtype)


def scale_of(problem: Problem) -> float:
    return 1 / math.sqrt(problem.head_dim) if problem.softmax_scale is None else problem.softmax_scale


def _shapes(problem: Problem) -> dict[str, jax.ShapeDtypeStruct]:
    q = (problem.batch_size, problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = (problem.batch_size, problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    lse = (problem.batch_size, problem.num_heads_q, problem.seqlen_q)
    shapes = {"q": q, "k": k, "v": k, "out": q, "dout": q, "dq": q, "dk": k, "dv": k}
    return {name: jax.ShapeDtypeStruct(shape, problem.dtype) for name, shape in shapes.items()} | {
        "lse": jax.ShapeDtypeStruct(lse, jnp.float32)
    }


@partial(jax.jit, donate_argnums=0, keep_unused=True)
def _filled_with_nan(arrays: Arrays) -> Arrays:
    return tuple(jnp.full_like(each, jnp.nan) for each in arrays)


class TargetVersions:
    """Stands in for JAX's ``cuda_versions`` where there is no CUDA."""

    @staticmethod
    def cuda_runtime_get_version() -> int:
        return 13000


@contextmanager
def _failures() -> Iterator[None]:
    """Whatever JAX raises is the candidate's outcome."""
    try:
        yield
    except Exception as error:
        kind = OutOfResources if _TOO_LARGE in str(error) else CompileError
        raise kind(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


LAUNCHER = PallasLauncher()
