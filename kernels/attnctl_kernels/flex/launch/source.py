"""From a call to the code that inductor generates for it, kept on disk; a config that it did not follow is an error.

Generating is all that needs the call; what is on disk is loaded as it is. So a process without a GPU can do it ahead.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.utils import get_code

from attnctl_kernels.contract import Candidate, CompileError, Task, fingerprint
from attnctl_kernels.flex import options
from attnctl_kernels.flex.launch.block_mask import FlexMask
from attnctl_kernels.flex.launch.graph import trace

_UNREADABLE = ("BACKEND", "FORCE_USE_FLEX_ATTENTION")  # they choose the kernel, and do not appear in it
_TEMPLATE = re.compile(r"triton_tem\w* = async_compile\.triton\(.*?'''(.*?)'''", re.DOTALL)
_CONSTANT = re.compile(r"^    (\w+) : tl\.constexpr = (\w+)$", re.MULTILINE)
_LAUNCH = re.compile(r"^(num_stages|num_warps)=(\d+),$", re.MULTILINE)
_CPU_BLOCK = re.compile(r"int64_t (qBlockSize|kvBlockSize) = (\d+)")


def generated(task: Task, candidate: Candidate, mask: FlexMask, device: torch.device) -> tuple[str, bool]:
    """The code, and whether it was on disk already.

    Raises:
        CompileError: inductor refuses the call, or ignored a part of ``candidate``.
    """
    path = cache_folder() / f"{_key(task, candidate, mask, device)}.py"
    if path.is_file():
        return path.read_text(), True
    code = _generate(task, candidate, mask, device)
    _check_followed(task, candidate, code)
    write_atomically(path, code.encode())
    return code, False


@cache
def cache_folder() -> Path:
    """Where generated code lies, and below it what inductor and Triton compile from it."""
    folder = Path(os.environ.get("ATTNCTL_CACHE_DIR") or ".attnctl/cache").absolute() / "flex" / torch.__version__
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)


def _key(task: Task, candidate: Candidate, mask: FlexMask, device: torch.device) -> str:
    return fingerprint(
        {
            "problem": task.problem.model_dump(mode="json"),
            "pass": task.pass_name,
            "arch": task.arch,
            "device": str(device),
            "threads": torch.get_num_threads() if device.type == "cpu" else None,
            "options": options.kernel_options(candidate.config, device.type),
            "block": mask.block_size,
            "sources": _sources(),
        }
    )


@cache
def _sources() -> str:
    """Of the modules that decide what is generated."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (*sorted(here.glob("*.py")), here.parent / "options.py", here.parent.parent / "masks.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _generate(task: Task, candidate: Candidate, mask: FlexMask, device: torch.device) -> str:
    try:
        with inductor.patch(settings()):
            graph = trace(task, candidate, mask, device)
            with graph.mode:
                code, *_ = get_code(lambda: compile_fx_inner(graph.module, graph.inputs))
    except Exception as error:
        raise CompileError(_reason(error)) from error
    return code


@cache
def settings() -> dict[str, Any]:
    """Inductor's settings: one tile per candidate, no search of its own, and nothing changed behind our back."""
    wanted = {
        "max_autotune": False,
        "max_autotune_gemm": False,
        "compile_threads": 1,  # the kernels are on disk already; a pool per worker would starve the others
        "use_static_cuda_launcher": True,  # the only one that needs no C compiler and can be handed over
        "triton.cudagraphs": False,
        # torch 2.13: a kernel that exceeds shared memory would run with num_stages 1, whatever was asked.
        "triton.dynamic_disable_pipelining": False,
    }
    known = inductor.get_config_copy()
    return {name: value for name, value in wanted.items() if name in known}


def _check_followed(task: Task, candidate: Candidate, code: str) -> None:
    on_cpu = task.arch is None
    heeded = options.of_pass(candidate.config, task.pass_name)
    asked: dict[str, Any] = {name: heeded[name] for name in options.KERNEL_OPTIONS if name in heeded and not on_cpu}
    found = _in_cpp(code) if on_cpu else _in_triton(code)
    if on_cpu and candidate.sparse_block:
        asked = dict(zip(("qBlockSize", "kvBlockSize"), candidate.sparse_block, strict=True))
    elif candidate.sparse_block:
        asked |= dict(zip(("SPARSE_Q_BLOCK_SIZE", "SPARSE_KV_BLOCK_SIZE"), candidate.sparse_block, strict=True))
    for name, value in asked.items():
        if name not in _UNREADABLE and found.get(name) != str(value):
            raise CompileError(f"torch ignored {name}: {value} was asked for, and the kernel has {found.get(name)}")


def _in_triton(code: str) -> Mapping[str, str]:
    """Constants of the attention kernel, and how it is launched."""
    kernel = _TEMPLATE.search(code)
    if kernel is None:
        raise CompileError("torch generated no FlexAttention kernel for this call")
    return {**dict(_CONSTANT.findall(kernel[1])), **dict(_LAUNCH.findall(kernel[1]))}


def _in_cpp(code: str) -> Mapping[str, str]:
    found = dict(_CPU_BLOCK.findall(code))
    if not found:
        raise CompileError("torch generated no FlexAttention kernel for this call")
    return found


def _reason(error: Exception) -> str:
    """Inductor wraps what it raises, and appends the whole graph."""
    text = str(error).partition("\n  target:")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
