"""Compile forward kernels on all cores, into the folder where the operator looks for them: a GPU waits for none."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from attnctl_kernels.ranker.cache import kernel_folder
from attnctl_kernels.ranker.config import default_config


def compile_ahead(*kernels):
    """``(head_dim, dtype, changes of the default config, {ranges, capped})`` each, in processes that see no device."""
    arguments = {json.dumps([dim, str(dtype), changes, form], sort_keys=True) for dim, dtype, changes, form in kernels}
    count = min(os.cpu_count() or 1, len(arguments))
    shares = [sorted(arguments)[place::count] for place in range(count)]
    with ThreadPoolExecutor(count) as pool:
        for done in pool.map(_compile, shares):
            done.check_returncode()


def _compile(arguments):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, __file__, *arguments], env=environment, check=False)


def kernel_object(head_dim, dtype, changes, form):
    from attnctl_kernels.ranker.sm90 import build

    config = default_config(head_dim, ranges=form.get("ranges", False)) | changes
    traits = build.forward_traits(head_dim, dtype.removeprefix("torch."), config, **form)
    return build.forward_object(traits, kernel_folder())


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        kernel_object(*json.loads(argument))
