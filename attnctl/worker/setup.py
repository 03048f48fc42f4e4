"""Everything about one task that its candidates share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attnctl.gpu.protocol import CachePolicy
from attnctl.worker.devices import Device
from attnctl.worker.graphs import CALLS
from attnctl.worker.inputs import negative_scores, random_inputs
from attnctl.worker.trial import Heads, Trial, outputs
from attnctl_kernels import masks
from attnctl_kernels.contract import Call, Candidate, Inputs, Launcher, Mask, SparseBlock, Task

_LARGEST_TILE = 256  # keys; of any kernel here


class Setup:
    """Inputs on the device, and the references that outputs are compared with.

    All candidates run on the same ``live`` tensors. A bound call must read them when it runs, because the checks change
    their values under it: that way one compiled kernel serves every trial.
    """

    def __init__(self, task: Task, device: Device, cache: CachePolicy = "cold") -> None:
        self.task = task
        self.device = device
        self.cache: CachePolicy = cache
        self.heads = Heads.choose(task.problem, task.pass_name, device.reference_flop)
        self.main = self._trial("seeded inputs", random_inputs, task.seed)
        self.live = self.main.fresh_inputs()

    @cached_property
    def _seals(self) -> tuple[tuple[int, ...], ...]:
        return self.main.seal(), self.negative.seal()

    def seal(self) -> None:
        """Remember what inputs and references are, once they are all there."""
        assert self._seals

    def is_intact(self) -> bool:
        """False after a kernel has written somewhere into what it was not given."""
        return self._seals == (self.main.seal(), self.negative.seal())

    @cached_property
    def negative(self) -> Trial:
        return self._trial("strongly negative scores", negative_scores, self.task.seed)

    @cached_property
    def second(self) -> Trial:
        return self._trial("inputs of a second seed", random_inputs, self.task.seed + (1 << 20))

    @cached_property
    def dense(self) -> dict[str, Tensor]:
        """What a kernel that ignores the mask computes from the main trial."""
        problem = self.task.problem.model_copy(update={"mask": Mask()})
        return outputs(self.main.values, problem, self.heads)

    @cached_property
    def blind_rows(self) -> Tensor:
        """Which query rows see no key."""
        problem = self.task.problem
        classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, 1, problem.seqlen_k)
        return self._upload(classes[:, 0] == masks.EMPTY)

    def unseen_keys(self, sparse_block: SparseBlock | None) -> Tensor:
        """Keys that a kernel which skips empty tiles never loads.

        With a sparse block these are the key blocks that no row sees. Without one the tiles may lie anywhere, so only
        keys count whose whole neighbourhood of a largest tile is unseen.
        """
        problem = self.task.problem
        width = sparse_block[1] if sparse_block else 1
        classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, problem.seqlen_q, width)
        unseen = np.repeat(classes[0] == masks.EMPTY, width)[: problem.seqlen_k]
        if not sparse_block:
            seen_before = np.concatenate(([0], np.cumsum(~unseen)))
            key = np.arange(problem.seqlen_k)
            stop = np.minimum(key + _LARGEST_TILE, problem.seqlen_k)
            unseen = seen_before[stop] == seen_before[np.maximum(key + 1 - _LARGEST_TILE, 0)]
        return self._upload(unseen)

    def bind(self, launcher: Launcher, candidate: Candidate) -> Call:
        """``candidate`` on the live inputs, which hold the main trial's values."""
        self.main.copy_to(self.live)
        return launcher.bind(self.task, candidate, self.exported())

    @cached_property
    def copies(self) -> tuple[Inputs, ...]:
        """The main trial's values for the further calls of a graph."""
        return tuple(self.main.fresh_inputs() for _ in range(CALLS - 1))

    def exported(self, inputs: Inputs | None = None) -> Inputs:
        """``inputs``, or else the live ones, as the framework's arrays."""
        values = ((each.name, getattr(inputs or self.live, each.name)) for each in fields(Inputs))
        return Inputs(**{name: None if value is None else self.device.export(value) for name, value in values})

    def _trial(self, name: str, make: Callable[..., Inputs], seed: int) -> Trial:
        problem = self.task.problem
        gradient = self.task.pass_name == "backward"  # noqa: S105 - not a password
        values = make(problem, seed, self.device.torch_device, gradient=gradient)
        return Trial.of(name, values, problem, self.heads)

    def _upload(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device.torch_device)
