"""Block-sparse attention in plain PyTorch, on any device. Worker processes only.

Queries are walked in tiles of ``block_q`` rows; each visits only the key tiles that the block lists name. Inside, all
batch rows and heads share one batched matrix product, and everything is computed in float32. The query heads of one key
head lie side by side as rows: ``[B * Hkv, seqlen * group, head_dim]``, so that grouped heads cost no copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnctl_kernels import masks
from attnctl_kernels.blocks.spec import FAMILY
from attnctl_kernels.blocks.tiles import classify
from attnctl_kernels.contract import Call, Candidate, Compiled, Inputs, Task

_LOWEST = torch.finfo(
    torch.float32
).min  # a running maximum that has seen nothing; finite, so that no NaN can come of it


class Step(NamedTuple):
    """One listed key tile of a query tile."""

    keys: slice
    partial: bool  # needs the element mask


class Tiles:
    """Which tiles are visited, and the element mask inside the partial ones."""

    def __init__(self, task: Task, candidate: Candidate, device: torch.device) -> None:
        problem, config = task.problem, candidate.config
        block_q, block_kv = int(config["block_q"]), int(config["block_kv"])
        self._pattern = masks.pattern(problem.mask, problem.seqlen_q, problem.seqlen_k)
        self._tables: dict[int, Tensor] = {}
        self._q = torch.arange(problem.seqlen_q, device=device)[:, None]
        self._k = torch.arange(problem.seqlen_k, device=device)
        classes = classify(problem, (block_q, block_kv), candidate.sparse_block)
        self._steps = [
            (
                slice(tile * block_q, min((tile + 1) * block_q, problem.seqlen_q)),
                [
                    Step(slice(key * block_kv, min((key + 1) * block_kv, problem.seqlen_k)), row[key] == masks.PARTIAL)
                    for key in np.flatnonzero(row).tolist()
                ],
            )
            for tile, row in enumerate(classes)
        ]

    def __iter__(self) -> Iterator[tuple[slice, list[Step]]]:
        """Query tiles with what each visits."""
        return iter(self._steps)

    def mask(self, scores: Tensor, rows: slice, step: Step, group: int) -> None:
        """Set the scores ``[heads, rows * group, keys]`` that a partial tile hides to -inf."""
        if step.partial:
            hidden = self._pattern.sees(self._q[rows], self._k[step.keys], self._table).logical_not_()
            scores.unflatten(1, (-1, group)).masked_fill_(hidden[:, None], -math.inf)

    def _table(self, array: np.ndarray) -> Tensor:
        """The pattern's look-up table on the device; copied there once."""
        if id(array) not in self._tables:
            self._tables[id(array)] = torch.as_tensor(array, device=self._q.device)
        return self._tables[id(array)]


class _BlocksCall:
    """What both passes share: the layout by heads, and outputs of its own."""

    def __init__(self, task: Task, candidate: Candidate, inputs: Inputs, outputs: dict[str, Tensor]) -> None:
        problem = task.problem
        self._inputs = inputs
        self._outputs = outputs
        self.build_lists = partial(Tiles, task, candidate, inputs.q.device)
        self._tiles = self.build_lists()
        self._num_heads_kv = problem.num_heads_kv
        self._group = problem.num_heads_q // problem.num_heads_kv
        self._scale = problem.softmax_scale or 1 / math.sqrt(problem.head_dim)

    def outputs(self) -> Mapping[str, Tensor]:
        return self._outputs

    def poison(self) -> None:
        for output in self._outputs.values():
            output.fill_(math.nan)

    def _by_head(self, x: Tensor) -> Tensor:
        """``(B, S, H, D)`` as a view ``[B, Hkv, S, group, D]``."""
        return x.unflatten(2, (self._num_heads_kv, -1)).transpose(1, 2)

    def _lse_by_head(self, lse: Tensor) -> Tensor:
        """``(B, H, S)`` as a view ``[B, Hkv, S, group]``."""
        return lse.unflatten(1, (self._num_heads_kv, -1)).transpose(2, 3)

    def _load(self, x: Tensor) -> Tensor:
        """``(B, S, H, D)`` as float32 ``[B * Hkv, S * group, D]``."""
        by_head = self._by_head(x)
        return by_head.to(torch.float32, memory_format=torch.contiguous_format).flatten(2, 3).flatten(0, 1)

    def _rows(self, rows: slice) -> slice:
        return slice(rows.start * self._group, rows.stop * self._group)


class ForwardCall(_BlocksCall):
    """Online softmax: a running maximum, sum and output per row, corrected when the maximum rises."""

    @torch.no_grad()
    def run(self) -> None:
        q, k, v = (self._load(x) for x in (self._inputs.q, self._inputs.k, self._inputs.v))
        q = q * self._scale
        out, lse = self._by_head(self._outputs["out"]), self._lse_by_head(self._outputs["lse"])
        for rows, steps in self._tiles:
            tile = q[:, self._rows(rows)]
            largest = tile.new_full((*tile.shape[:2], 1), _LOWEST)
            total = torch.zeros_like(largest)
            weighted = tile.new_zeros(*tile.shape[:2], v.shape[-1])
            for step in steps:
                scores = tile @ k[:, step.keys].mT
                self._tiles.mask(scores, rows, step, self._group)
                before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
                weights = scores.sub_(largest).exp_()
                correction = before.sub_(largest).exp_()
                total.mul_(correction).add_(weights.sum(-1, keepdim=True))
                weighted.mul_(correction).baddbmm_(weights, v[:, step.keys])
            # A row that saw no key has total 0: its output is 0 and its LSE log(0) = -inf.
            weighted.div_(total.masked_fill(total == 0, 1))
            lse[:, :, rows] = largest.add_(total.log_()).view_as(lse[:, :, rows])
            out[:, :, rows] = weighted.view_as(out[:, :, rows])


class BackwardCall(_BlocksCall):
    """Gradients from the LSE: probabilities are computed again, tile by tile, with no second softmax."""

    @torch.no_grad()
    def run(self) -> None:
        inputs = self._inputs
        q, k, v, out, dout = (self._load(x) for x in (inputs.q, inputs.k, inputs.v, inputs.out, inputs.dout))
        q = q * self._scale
        # A row that saw no key: exp(score - inf) = 0, so that it takes no part.
        lse = self._lse_by_head(inputs.lse).flatten(2, 3).flatten(0, 1).unsqueeze(-1)
        lse = lse.masked_fill(lse == -math.inf, math.inf)
        delta = (out * dout).sum(-1, keepdim=True)
        dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        dq = self._by_head(self._outputs["dq"])
        for rows, steps in self._tiles:
            part = self._rows(rows)
            tile, dtile = q[:, part], dout[:, part]
            dtile_q = torch.zeros_like(tile)
            for step in steps:
                keys = step.keys
                scores = tile @ k[:, keys].mT
                self._tiles.mask(scores, rows, step, self._group)
                weights = scores.sub_(lse[:, part]).exp_()
                dv[:, keys].baddbmm_(weights.mT, dtile)
                dscores = (dtile @ v[:, keys].mT).sub_(delta[:, part]).mul_(weights)
                dk[:, keys].baddbmm_(dscores.mT, tile)  # the scale is in the queries
                dtile_q.baddbmm_(dscores, k[:, keys])
            dq[:, :, rows] = dtile_q.mul_(self._scale).view_as(dq[:, :, rows])
        for name, gradient in (("dk", dk), ("dv", dv)):
            view = self._by_head(self._outputs[name])
            view.copy_(gradient.view_as(view))


class BlocksLauncher:
    framework = "torch"
    compiles = False

    def warm_up(self) -> None:
        """PyTorch is all there is to import."""

    def available(self, arch: str | None) -> str | None:
        """PyTorch is imported by this module: where that worked, everything is there."""
        return None

    def versions(self) -> dict[str, str]:
        """PyTorch's version, and a hash of this family's sources."""
        return {"torch": torch.__version__, **FAMILY.sources()}

    def compile(self, task: Task, candidate: Candidate) -> Compiled | None:
        return None

    def bind(self, task: Task, candidate: Candidate, inputs: Inputs) -> Call:
        if task.pass_name == "forward":  # noqa: S105 - not a password
            batch_size, seqlen_q, num_heads_q, _ = inputs.q.shape
            outputs = {
                "out": inputs.q.new_empty(batch_size, seqlen_q, num_heads_q, task.problem.head_dim_v),
                "lse": inputs.q.new_empty(batch_size, num_heads_q, seqlen_q, dtype=torch.float32),
            }
            return ForwardCall(task, candidate, inputs, outputs)
        outputs = {f"d{name}": torch.empty_like(getattr(inputs, name)) for name in ("q", "k", "v")}
        return BackwardCall(task, candidate, inputs, outputs)


LAUNCHER = BlocksLauncher()
