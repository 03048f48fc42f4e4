"""Kernels of a few microseconds are timed as one CUDA graph of several calls, each on tensors of its own.

Events around a single call of that length show the launch as much as the kernel. Every call of the graph has its own
copy of the inputs and its own outputs, so that none finds in the cache what the one before it left there.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnctl.worker.devices import Run
from attnctl.worker.trial import flop
from attnctl_kernels.contract import Call, Task

CALLS = 16  # in a graph
_FLOOR_US = 5.0
# What an H200 was measured to sustain: 709 TFLOP/s, 4.27 TB/s. The same on every device, so that all
# processes of a sweep, and all sweeps of a task, answer alike.
_FLOP_PER_US = 7.09e8
_BYTES_PER_US = 4.27e6


@dataclass(frozen=True, slots=True)
class Timed:
    """What is timed of a candidate: ``calls`` of it by one ``run``; 0 where that is the call itself."""

    run: Run
    calls: int = 0
    held: tuple[Call, ...] = ()  # that a run makes: their outputs can be looked at, and a graph goes on using them


def is_short(task: Task) -> bool:
    """Whether a good kernel takes less than about 10 us: where operations and bytes leave it less than half of that.

    By the task alone, so that no two candidates of one are timed in different ways.
    """
    return max(flop(task.problem, task.pass_name) / _FLOP_PER_US, _bytes(task) / _BYTES_PER_US) < _FLOOR_US


def _bytes(task: Task) -> int:
    """Of the tensors that are read and written once."""
    problem = task.problem
    rows = problem.batch_size * problem.seqlen_q * problem.num_heads_q
    keys = problem.batch_size * problem.seqlen_k * problem.num_heads_kv
    elements = (rows + keys) * (problem.head_dim + problem.head_dim_v)
    passes = 1 if task.pass_name == "forward" else 2  # noqa: S105 - not a password
    return passes * elements * problem.element_bytes
