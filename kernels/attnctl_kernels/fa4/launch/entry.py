"""flash-attn-4's own module, imported once: its on-disk cache switched on, its target named where there is no GPU."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata, util
from pathlib import Path
from types import ModuleType

import torch

from attnctl_kernels.fa4.target import describe_target

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


@cache
def interface() -> ModuleType:
    """``flash_attn.cute.interface``. The public functions take no tile, so attnctl calls the private ones in it."""
    # FA4-X002: the key of an object on disk leaves these two versions out.
    versions = f"quack-{metadata.version('quack-kernels')}-cuda-{torch.version.cuda}"
    folder = Path(os.environ.get("ATTNCTL_CACHE_DIR") or ".attnctl/cache") / "fa4" / versions
    os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] = "1"
    os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"] = str(folder.absolute())
    if not torch.cuda.is_available():
        describe_target()
    from flash_attn.cute import interface as module  # noqa: PLC0415 - reads the environment when it is imported

    found: ModuleType = module
    return found
