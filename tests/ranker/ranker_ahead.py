"""Compile kernels on all cores, into the folder where the operator looks for them: a GPU waits for none."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.config import default_config


def forward(head_dim, dtype, changes=None, **form):
    """A kernel of the default config with ``changes``; ``form`` is ``ranges`` and ``capped``."""
    return "forward", head_dim, str(dtype).removeprefix("torch."), changes or {}, form


def backward(head_dim, dtype, config, **form):
    """Likewise, of a whole config; ``form`` is ``ranges``, ``capped`` and ``lse_gradient``."""
    return "backward", head_dim, str(dtype).removeprefix("torch."), config, form


def kernel_object(pass_name, head_dim, dtype, config, form):
    if pass_name == "backward":
        return backward_call.kernel_object(head_dim, dtype, config, kernel_folder(), **form)[0]
    from attnctl_kernels.ranker.sm90 import build

    whole = default_config(head_dim, ranges=form.get("ranges", False)) | config
    return build.forward_object(build.forward_traits(head_dim, dtype, whole, **form), kernel_folder())[0]


def compile_ahead(kernels):
    """What ``forward`` and ``backward`` say, in processes that see no device."""
    arguments = sorted({json.dumps(each, sort_keys=True) for each in kernels})
    count = min(os.cpu_count() or 1, len(arguments))
    with ThreadPoolExecutor(count) as pool:
        for done in pool.map(_compile, [arguments[place::count] for place in range(count)]):
            done.check_returncode()


def _compile(arguments):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, __file__, *arguments], env=environment, check=False)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        kernel_object(*json.loads(argument))
