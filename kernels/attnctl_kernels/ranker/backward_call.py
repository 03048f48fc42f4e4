"""What the backward kernels are called with. Imports torch: for worker processes and programs only."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnctl_kernels.contract import Config
from attnctl_kernels.ranker.backward_config import width

if TYPE_CHECKING:
    from attnctl_kernels.ranker.sm90.build import Kernel


def kernel_object(head_dim: int, dtype: str, config: Config, folder: Path, **form: bool) -> tuple[Path, bool]:
    """The kernels' object file, compiled now unless it is there, and whether it was. ``form``: as of BackwardTraits."""
    from attnctl_kernels.ranker.sm90 import backward_build  # noqa: PLC0415 - imports cutlass, which takes seconds

    traits = backward_build.backward_traits(head_dim, dtype, config, **form)
    found: tuple[Path, bool] = backward_build.backward_object(traits, folder)
    return found


@cache
def load(path: Path) -> Kernel:
    from attnctl_kernels.ranker.sm90 import backward_build  # noqa: PLC0415 - imports cutlass, which takes seconds

    kernel: Kernel = backward_build.load(path)
    return kernel


def scratch(q: Tensor, tile_m: int) -> tuple[Tensor, Tensor]:
    """Sums of dQ, and LSE with delta, per query head and walked row (``sm90/walk.py``). They may hold anything."""
    batch_size, seqlen, num_heads, head_dim = q.shape
    columns = width(head_dim)
    tiles = -(-seqlen // tile_m) + 1
    sums = torch.empty(batch_size, num_heads, tiles * tile_m, columns, dtype=torch.float32, device=q.device)
    stats = torch.empty(batch_size, num_heads, tiles, 2 * tile_m, dtype=torch.float32, device=q.device)
    return sums, stats


def spans(k: Tensor) -> Tensor:
    """Where rows see ranges: which rows see a key (``sm90/spans.py``). As integers it may hold anything, too."""
    return torch.empty(*k.shape[:2], 2, dtype=torch.float32, device=k.device)
