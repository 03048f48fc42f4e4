"""Compile flash-attn-4's kernels, and call its forward kernel on sm_90. Worker processes only.

Every pattern but ``dense`` runs as an element predicate plus block lists, also where the kernel has a native form
(``causal``, a window): a candidate then means the same for every mask. ``compile`` and ``bind`` reach the kernel
through :func:`_launch`, one with fake and one with real tensors, so that what one compiles the other finds on disk.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from attnctl_kernels import masks
from attnctl_kernels.contract import Candidate, Compiled, CompileError, Inputs, OutOfResources, Problem, Task
from attnctl_kernels.fa4 import predicates
from attnctl_kernels.fa4.cubin import read_cubin
from attnctl_kernels.fa4.failures import is_out_of_resources, one_line
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.fa4.target import describe_target, target

ARCH = "sm_90"
PACKAGES = ("flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels")
# quack imports triton without declaring it.
MODULES = {
    "flash_attn": "flash-attn-4",
    "cutlass": "nvidia-cutlass-dsl",
    "quack": "quack-kernels",
    "einops": "einops",
    "triton": "triton",
}


def missing_packages() -> list[str]:
    """What must be installed before flash-attn-4 can be imported."""
    return [package for module, package in MODULES.items() if util.find_spec(module) is None]


class ForwardCall:
    """The compiled kernel with its arguments made once: ``run`` is one foreign call."""

    def __init__(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], out: Any, lse: Any) -> None:
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
            output.fill_(float("nan"))


class Fa4Launcher:
    framework = "torch"
    compiles = True

    def warm_up(self) -> None:
        """flash-attn-4 and its compiler: 6 s, which the first candidate would wait for."""
        if not missing_packages():
            forward_entry()

    def available(self, arch: str | None) -> str | None:
        """None if forward can run here; otherwise one sentence saying what is missing."""
        if missing := missing_packages():
            raise ModuleNotFoundError(name=missing[0])
        if arch not in (None, ARCH):
            return f"attnctl runs fa4 on {ARCH} only, not on {arch}"
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        major, minor = torch.cuda.get_device_capability()
        if major != 9:
            return f"fa4 is tuned on {ARCH}; this device is sm_{major}{minor}"
        return None

    def versions(self) -> dict[str, str]:
        """Installed versions, and the hash of the kernel package's sources."""
        installed = {each.name: each for each in metadata.distributions() if each.name in PACKAGES}
        versions = {name: each.version for name, each in sorted(installed.items())}
        return versions | FAMILY.sources()

    def compile(self, task: Task, candidate: Candidate) -> Compiled:
        """Compile with fake tensors into the on-disk cache; no GPU is touched."""
        from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - slow, and measuring needs it not

        if missing := missing_packages():
            raise ModuleNotFoundError(name=missing[0])
        if task.arch != target():
            raise CompileError(f"this process compiles for {target()}, not for {task.arch}")
        _check_forward(task)
        begun = time.perf_counter()
        with FakeTensorMode():
            recorder, _, _ = _launch(task.problem, candidate, _fake_inputs(task.problem))
        cubin = read_cubin(recorder.object_file.read_bytes()) if recorder.object_file.is_file() else None
        return Compiled(
            seconds=time.perf_counter() - begun,
            # The block lists are not part of the device code, and decide the time.
            binary=f"{cubin.binary}-{candidate.sparse_block}" if cubin else None,
            resources=cubin.resources if cubin else {},
            cached=not recorder.compiled,
        )

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> ForwardCall:
        _check_forward(task)
        recorder, out, lse = _launch(task.problem, candidate, inputs)
        return ForwardCall(recorder.kernel, recorder.arguments, out, lse)


class _Recorder:
    """Stands in for the kernel's cache during one call: notes the kernel and its arguments instead of launching."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.key: Any = None
        self.compiled = False  # False: it was in memory or on disk
        self.arguments: tuple[Any, ...] = ()

    def __contains__(self, key: Any) -> bool:
        self.key = key
        return key in self.cache

    def __setitem__(self, key: Any, kernel: Any) -> None:
        self.compiled = True
        self.cache[key] = kernel

    def __getitem__(self, key: Any) -> Callable[..., None]:
        return self._record

    def _record(self, *arguments: Any) -> None:
        self.arguments = arguments

    @property
    def kernel(self) -> Callable[..., Any]:
        """As it comes from disk, also if it was compiled just now: one kind of call is measured, the thinner one."""
        if self.compiled:
            fresh = self.cache.cache.pop(self.key)
            if self.key not in self.cache:  # it could not be written: a full disk
                self.cache.cache[self.key] = fresh
        kernel: Callable[..., Any] = self.cache[self.key]
        return kernel

    @property
    def object_file(self) -> Path:
        return Path(self.cache.cache_path) / f"{self.cache._key_to_hash(self.key)}.o"  # noqa: SLF001


def _launch(problem: Problem, candidate: Candidate, inputs: Inputs) -> tuple[_Recorder, Any, Any]:
    """Send one call through flash-attn-4's own entry, up to the launch itself.

    Raises:
        CompileError: tracing or compiling failed.
    """
    kernel = forward_entry()
    config, device = candidate.config, inputs.q.device
    out = torch.empty((*inputs.q.shape[:3], problem.head_dim_v), dtype=inputs.q.dtype, device=device)
    lse_shape = (problem.batch_size, problem.num_heads_q, problem.seqlen_q)
    lse = torch.empty(lse_shape, dtype=torch.float32, device=device)
    arguments: dict[str, Any] = {
        "softmax_scale": problem.softmax_scale,
        "tile_mn": (config["tile_m"], config["tile_n"]),
        "mma_pv_is_rs": config.get("mma_pv_is_rs"),  # None: the kernel's choice, and only sm_90 has one
        "intra_wg_overlap": config.get("intra_wg_overlap"),
        "out": out,
        "lse": lse,
        **_mask_arguments(problem, candidate, device),
    }
    with _recording(kernel) as recorder:
        try:
            kernel(inputs.q, inputs.k, inputs.v, **arguments)
        except Exception as error:
            raise CompileError(one_line(error)) from error
    return recorder, out, lse


def _mask_arguments(problem: Problem, candidate: Candidate, device: torch.device) -> dict[str, Any]:
    """The mask as flash-attn-4 takes it: element predicate, its tables, and the lists of full and partial blocks."""
    predicate = predicates.predicate(problem)
    if predicate is None:
        return {}
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch  # noqa: PLC0415 - after forward_entry has set the environment

    block = candidate.sparse_block or (int(candidate.config["tile_m"]), int(candidate.config["tile_n"]))
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, *block)
    lists = masks.block_lists(classes)
    # One mask for all batches and heads: the leading dimensions of length 1 are broadcast.
    tensors = [_upload(array[None, None], device) for array in lists]
    return {
        "mask_mod": _mask_mod(problem, predicate),
        "block_sparse_tensors": BlockSparseTensorsTorch(*tensors, block_size=block),
        "aux_tensors": [_upload(masks.np.asarray(table, dtype="int32"), device) for table in predicate.tables] or None,
    }


def _mask_mod(problem: Problem, predicate: predicates.Predicate) -> Callable[..., Any]:
    from cutlass import Int32  # noqa: PLC0415
    from flash_attn.cute import utils  # noqa: PLC0415

    def mask_mod(_batch: Any, _head: Any, q: Any, k: Any, _seqlen: Any, tables: Any) -> Any:
        def look(table: int, index: Any) -> Any:
            return utils.scalar_to_ssa(tables[table][utils.ssa_to_scalar(index)], Int32)

        return predicate.visible(q, k, look)

    # The kernel's cache key. Left to itself it would hash this function alone, and not what it closes over.
    identity = (problem.mask.model_dump_json(), problem.seqlen_k - problem.seqlen_q, _predicate_sources())
    mask_mod.__cute_hash__ = hashlib.sha256(repr(identity).encode()).hexdigest()
    return mask_mod


@cache
def _predicate_sources() -> str:
    return inspect.getsource(predicates) + inspect.getsource(masks)


def _upload(array: Any, device: torch.device) -> torch.Tensor:
    from torch._guards import active_fake_mode  # noqa: PLC0415

    if active_fake_mode() is not None:  # only shape and type matter
        return torch.empty(array.shape, dtype=torch.int32, device=device)
    return torch.from_numpy(masks.np.ascontiguousarray(array)).to(device)


def _fake_inputs(problem: Problem) -> Inputs:
    def empty(seqlen: int, heads: int, dim: int) -> torch.Tensor:
        shape = (problem.batch_size, seqlen, heads, dim)
        return torch.empty(shape, dtype=getattr(torch, problem.dtype), device="cuda:0")

    return Inputs(
        q=empty(problem.seqlen_q, problem.num_heads_q, problem.head_dim),
        k=empty(problem.seqlen_k, problem.num_heads_kv, problem.head_dim),
        v=empty(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v),
    )


@cache
def forward_entry() -> Callable[..., Any]:
    """flash-attn-4's forward entry: on-disk cache switched on, target named where there is no GPU to ask."""
    # FA4-X002: the key of an object on disk leaves these two versions out.
    versions = f"quack-{metadata.version('quack-kernels')}-cuda-{torch.version.cuda}"
    folder = Path(os.environ.get("ATTNCTL_CACHE_DIR") or ".attnctl/cache") / "fa4" / versions
    os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] = "1"
    os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"] = str(folder.absolute())
    if not torch.cuda.is_available():
        describe_target()
    from flash_attn.cute import interface  # noqa: PLC0415 - reads the environment when it is imported

    kernel: Callable[..., Any] = interface._flash_attn_fwd  # noqa: SLF001 - the public functions take no tile
    return kernel


@contextmanager
def _recording(kernel: Any) -> Iterator[_Recorder]:
    real = kernel.compile_cache
    kernel.compile_cache = recorder = _Recorder(real)
    try:
        yield recorder
    finally:
        kernel.compile_cache = real


def _check_forward(task: Task) -> None:
    if task.pass_name != "forward":  # noqa: S105 - not a password
        raise CompileError("flash-attn-4's backward takes no tiles as arguments, so attnctl cannot tune it yet")


LAUNCHER = Fa4Launcher()
