"""One call through flash-attn-4's entries, up to the launches: with fake tensors to compile, with real ones to bind.

Both go the same way, so that what one compiles the other finds on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from attnctl_kernels.contract import Candidate, CompileError, Inputs, OutOfResources, Task
from attnctl_kernels.fa4.backward import Sm90Backward
from attnctl_kernels.fa4.failures import is_out_of_resources, one_line
from attnctl_kernels.fa4.launch.arguments import block_lists, empty_lse, mask_arguments
from attnctl_kernels.fa4.launch.entry import interface
from attnctl_kernels.fa4.launch.recording import Launch, Recorder, answering, recording
from attnctl_kernels.fa4.mask_form import uses_lists


class KernelCall:
    """The compiled kernels with their arguments made once: ``run`` is one foreign call for each.

    Args:
        launches: in order.
        outputs: by name.
        sums: buffers that kernels add to, and that must hold zeros before the first of them runs.
        scratch: buffers that hold anything at all when the first kernel runs.
        build_lists: makes the block lists anew; None where the kernel reads none.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        outputs: Mapping[str, torch.Tensor],
        sums: Sequence[torch.Tensor] = (),
        scratch: Sequence[torch.Tensor] = (),
        build_lists: Callable[[], Any] | None = None,
    ) -> None:
        self.build_lists = build_lists
        self._launches = [(each.kernel(), each.arguments) for each in launches]
        self._outputs = outputs
        self._sums = sums
        self._scratch = scratch

    def run(self) -> None:
        try:
            for buffer in self._sums:
                buffer.zero_()
            for kernel, arguments in self._launches:
                kernel(*arguments)
        except Exception as error:
            if is_out_of_resources(error):
                raise OutOfResources(one_line(error)) from error
            raise

    def outputs(self) -> Mapping[str, torch.Tensor]:
        return self._outputs

    def poison(self) -> None:
        for buffer in (*self._outputs.values(), *self._scratch):
            buffer.fill_(float("nan"))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one call looked for, compiled, and would have launched; the main kernel's recorder comes first."""

    recorders: tuple[Recorder, ...]
    outputs: Mapping[str, torch.Tensor]
    build_lists: Callable[[], Any] | None

    @property
    def launches(self) -> list[Launch]:
        return self.recorders[0].launches

    @property
    def compiled(self) -> bool:
        return any(any(each.compiled.values()) for each in self.recorders)

    def call(self) -> KernelCall:
        if len(self.recorders) == 1:
            return KernelCall(self.launches, self.outputs, build_lists=self.build_lists)
        (main,) = (each for each in self.launches if each.cache is self.recorders[0].cache)
        # lse_log2, dpsum, dq_accum, which the preprocessing writes; dk and dv, or sums of them over a group.
        scratch, gradients = main.arguments[4:7], main.arguments[7:9]
        sums = [each for each in gradients if each.dtype == torch.float32]
        return KernelCall(self.launches, self.outputs, sums, scratch, self.build_lists)


def record(task: Task, candidate: Candidate, inputs: Inputs) -> Recorded:
    """Send one call through the entry of the task's pass.

    Raises:
        CompileError: tracing or compiling failed.
    """
    return (_forward if task.pass_name == "forward" else _backward)(task, candidate, inputs)  # noqa: S105 - not a password


def _forward(task: Task, candidate: Candidate, inputs: Inputs) -> Recorded:
    module, problem, config, device = interface(), task.problem, candidate.config, inputs.q.device
    outputs = {
        "out": torch.empty((*inputs.q.shape[:3], problem.head_dim_v), dtype=inputs.q.dtype, device=device),
        "lse": empty_lse(problem, device),
    }
    arguments: dict[str, Any] = {
        "softmax_scale": problem.softmax_scale,
        "tile_mn": (config["tile_m"], config["tile_n"]),
        "mma_pv_is_rs": config.get("mma_pv_is_rs"),  # None: the kernel's choice, and only sm_90 has one
        "intra_wg_overlap": config.get("intra_wg_overlap"),
        "pack_gqa": config.get("pack_gqa"),  # None: grouped heads share the rows of a tile
        **mask_arguments(task, candidate, device),
        **outputs,
    }
    entry = module._flash_attn_fwd  # noqa: SLF001 - see interface()
    with recording([entry]) as recorders:
        _enter(entry, (inputs.q, inputs.k, inputs.v), arguments)
    return Recorded(tuple(recorders), outputs, _builder(task, candidate, device))


def _backward(task: Task, candidate: Candidate, inputs: Inputs) -> Recorded:
    """Preprocessing (dO·O, and zeros for dQ), the kernel itself, and conversions of the sums of dQ (dK, dV)."""
    module, config = interface(), candidate.config
    tensors = (inputs.q, inputs.k, inputs.v, inputs.out, inputs.dout, inputs.lse)
    outputs = {name: torch.empty_like(tensor) for name, tensor in zip(("dq", "dk", "dv"), tensors[:3], strict=True)}
    arguments: dict[str, Any] = {
        "softmax_scale": task.problem.softmax_scale,
        **mask_arguments(task, candidate, inputs.q.device),
        **outputs,
    }
    entry = module._flash_attn_bwd  # noqa: SLF001 - see interface()
    others = (module._bwd_preprocess, module._bwd_postprocess_convert)  # noqa: SLF001 - likewise
    with ExitStack() as stand_ins:
        more_key: tuple[Any, ...] = ()
        if task.arch == "sm_90":
            chosen = Sm90Backward.of(config)
            # The kernel is compiled for it, and flash-attn-4's key leaves it out: without it here the second of two
            # configs that differ in nothing else would run the kernel of the first.
            more_key = ("num_stages_PdS", chosen.num_stages_PdS)
            own = module.BwdConfig(*chosen.in_order())
            stand_ins.enter_context(answering(module, "_tile_size_bwd_sm90", own))
        recorders = stand_ins.enter_context(recording([entry], more_key))
        others_recorders = stand_ins.enter_context(recording(others, (), recorders[0].launches))
        _enter(entry, tensors, arguments)
    return Recorded((*recorders, *others_recorders), outputs, _builder(task, candidate, inputs.q.device))


def _builder(task: Task, candidate: Candidate, device: torch.device) -> Callable[[], Any] | None:
    return partial(block_lists, task, candidate, device) if uses_lists(task.problem, candidate.config) else None


def _enter(entry: Callable[..., Any], tensors: tuple[Any, ...], arguments: dict[str, Any]) -> None:
    try:
        entry(*tensors, **arguments)
    except Exception as error:
        raise CompileError(one_line(error)) from error
