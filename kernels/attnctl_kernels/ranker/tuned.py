"""The config of a call that brings none."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from attnctl_kernels.contract import Mask, PassName, Problem, Task
from attnctl_kernels.ranker.checks import write_config

HISTORY = Mask(pattern="history_candidate")  # how long a history is, only the device knows


def tuned(pass_name: PassName, q: Tensor, k: Tensor, mask: Mask) -> str:
    """Tuned on this device for this shape or the nearest one, else the default, with a warning."""
    return _tuned(pass_name, q.device, q.shape, k.shape[1:3], q.dtype, mask)


def name_of(dtype: torch.dtype) -> Any:
    return str(dtype).removeprefix("torch.")


@cache
def _tuned(
    pass_name: PassName, device: torch.device, shape: torch.Size, keys: torch.Size, dtype: torch.dtype, mask: Mask
) -> str:
    """``keys`` is the length and the number of heads of K."""
    from attnctl.profile.kernel_call import config_of_call  # noqa: PLC0415 - only where nobody chose

    (batch_size, seqlen_q, num_heads_q, head_dim), (seqlen_k, num_heads_kv) = shape, keys
    problem = Problem(
        batch_size=batch_size,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        num_heads_q=num_heads_q,
        num_heads_kv=num_heads_kv,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=name_of(dtype),
        mask=mask,
    )
    task = Task(family="ranker", version=None, arch="sm_90", pass_name=pass_name, problem=problem)
    return write_config(config_of_call(task, torch.cuda.get_device_name(device), open_mask=("history_len",)))
