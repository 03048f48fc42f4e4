"""Compile kernels on all cores, into the folder where the operator looks for them: a GPU waits for none."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.config import default_config


def kernel_object(head_dim, dtype, config):
    """Of the backward kernels; of the forward one by default where ``config`` is None."""
    name = str(dtype).removeprefix("torch.")
    if config is not None:
        return backward_call.kernel_object(head_dim, name, config, kernel_folder())[0]
    from attnctl_kernels.ranker.sm90 import build

    return build.forward_object(build.forward_traits(head_dim, name, default_config(head_dim)), kernel_folder())[0]


def compile_ahead(kernels):
    """``(head_dim, dtype, config)`` each, in processes that see no device."""
    arguments = {json.dumps([head_dim, str(dtype), config]) for head_dim, dtype, config in kernels}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(_compile, sorted(arguments)):
            done.check_returncode()


def _compile(argument):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, __file__, argument], env=environment, check=False)


if __name__ == "__main__":
    head_dim, name, config = json.loads(sys.argv[1])
    kernel_object(head_dim, getattr(torch, name.removeprefix("torch.")), config)
