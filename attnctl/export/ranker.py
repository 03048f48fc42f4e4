"""What the ranker's kernels take, per pair of lengths.

Upstream's: a ``TuningConfig``, or keyword arguments of ``mha``. This project's own: a call of its operator or function.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.export import Export, _tuning_config
from attnctl.export._code import heading, table
from attnctl.profile.decision import Decision
from attnctl_kernels.contract import Problem
from attnctl_kernels.pallas_mgpu.resources import XAI
from attnctl_kernels.ranker_fa3.spec import PARAMETERS

FAMILIES = ("ranker", "ranker_fa3", "ranker_triton")
SUFFIX = ".py"

_NOT_ARGUMENTS = ("heads_repeated", "history_segment_id", "padding_segment_id", "inference")
_CALL = '''

def attention(q, k, v, bounds=None, **more):
    """Tensors are (batch, seqlen, heads, head_dim); bounds (batch, 4) int32, the profile's mask if it is None."""
    lengths = q.shape[1], k.shape[1]
    if bounds is None:
        bounds = torch.tensor([BOUNDS[lengths]] * q.shape[0], dtype=torch.int32, device=q.device)
    return ranker.attention(q, k, v, bounds, CONFIG[lengths], softmax_scale=SOFTMAX_SCALE, **more)
'''

_JAX_CALL = '''

def attention(q, k, v, bound=None, **more):
    """Tensors are (batch, seqlen, heads, head_dim); bound (batch, 4) int32, the profile's mask if it is None."""
    lengths = q.shape[1], k.shape[1]
    if bound is None:
        bound = np.array([BOUNDS[lengths]] * q.shape[0], np.int32)
    return ranker_fa3.attention(q, k, v, bound, CONFIG[lengths], softmax_scale=SOFTMAX_SCALE, **more)
'''


def render(export: Export) -> str:
    task = export.first.task
    if task.family == "ranker":
        body = list(_operator(export))
    elif task.family == "ranker_fa3" and task.version != XAI:
        body = list(_function(export))
    elif task.family == "ranker_fa3":
        body = [
            "# TuningConfig is the one of the module that defines the kernel: from xrex.pallas.ranker_attention_fa3",
            *_tuning_config.tables(export),
        ]
    else:
        body = ["# mha(q, k, v, ..., **MHA[seqlen_q, seqlen_k])", *_keywords(export)]
    return "\n".join([*heading(export), *body]) + "\n"


def _operator(export: Export) -> Iterator[str]:
    yield from ("import torch", "from attnctl_kernels import ranker", "")
    yield from _facts(export, [(each, repr(dict(each.candidate.config))) for each in export.decisions])
    yield from _CALL.splitlines()


def _function(export: Export) -> Iterator[str]:
    yield from ("import numpy as np", "from attnctl_kernels.ranker_fa3 import attention as ranker_fa3", "")
    rows = []
    for each in export.of_pass(export.decisions[-1].task.pass_name):  # which has the backward blocks, if any pass has
        config = each.candidate.config
        rows.append((each, repr({name: config[name] for name in PARAMETERS if config.get(name) is not None})))
    yield from _facts(export, rows)
    yield from _JAX_CALL.splitlines()


def _facts(export: Export, configs: list[tuple[Decision, str]]) -> Iterator[str]:
    yield f"SOFTMAX_SCALE = {export.first.task.problem.softmax_scale!r}  # None: 1 / sqrt(head_dim)"
    yield from table("CONFIG", configs)
    yield "# Of every batch row: history from, to; candidates from, to."
    yield from table("BOUNDS", [(each, repr(_bounds(each.task.problem))) for each, _ in configs])


def _bounds(problem: Problem) -> tuple[int, int, int, int]:
    """Without a mask, all rows are history."""
    length = problem.seqlen_k
    history = length if problem.mask.history_len is None else problem.mask.history_len
    return 0, history, history, length


def _keywords(export: Export) -> list[str]:
    last = export.decisions[-1].task.pass_name
    rows = []
    for each in export.of_pass(last):
        arguments = {name: value for name, value in each.candidate.config.items() if name not in _NOT_ARGUMENTS}
        rows.append((each, repr(arguments)))
    return list(table("MHA", rows))
