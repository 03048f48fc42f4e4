"""Run the backward kernels by themselves, from the smallest call that does anything upwards, and say what is wrong.

python tests/ranker/ranker_backward_ladder.py          # all rungs; PYTHONPATH has the repository and kernels/
python tests/ranker/ranker_backward_ladder.py --from 4

Output and LSE come from the formulas, scratch and gradients begin as NaN. A rung that hangs or crashes is reported, and
the next one runs in a process of its own. `--climb 9` runs in this process from there on: under compute-sanitizer, say.
Needs a Hopper GPU and the extra ranker.
"""

import argparse
import subprocess
import sys
import threading

import torch
from ranker_ahead import backward, compile_ahead, kernel_object
from ranker_gradients import Case, expected, faults

from attnctl_kernels.ranker import backward_call
from attnctl_kernels.ranker.backward_config import default_config

PATIENCE_S = 90
BF16, F16 = torch.bfloat16, torch.float16
ONE_GROUP = {"tile_m": 64, "tile_n": 64, "stages": 2}
TWO_GROUPS = {"tile_m": 64, "tile_n": 128, "stages": 2}
RING = {"tile_m": 64, "tile_n": 128, "stages": 2}
TWO_PARTS = {"tile_m": 128, "tile_n": 128, "stages": 2}
MIXED = [[0, 700, 700, 1000], [3, 55, 60, 61], [17, 900, 901, 990], [0, 0, 10, 1000], [5, 1000, 0, 0]]
RUNGS = [
    ("row by row: padding", Case([[0, 0, 0, 0]], 40, 1, 1, 128, BF16), ONE_GROUP),
    ("row by row: candidates", Case([[0, 0, 0, 40]], 40, 1, 1, 128, BF16), ONE_GROUP),
    ("one warp group, one step, dV alone", Case([[0, 64, 64, 64]], 64, 1, 1, 128, BF16, mute="v"), ONE_GROUP),
    ("one warp group, one step", Case([[0, 64, 64, 64]], 64, 1, 1, 128, BF16), ONE_GROUP),
    ("two warp groups, one step, half the keys", Case([[0, 64, 64, 64]], 64, 1, 1, 128, BF16), TWO_GROUPS),
    ("two warp groups, two steps, dV alone", Case([[0, 128, 0, 0]], 128, 1, 1, 128, BF16, mute="v"), TWO_GROUPS),
    ("two warp groups, two steps", Case([[0, 128, 0, 0]], 128, 1, 1, 128, BF16), TWO_GROUPS),
    ("a ring", Case([[0, 128, 128, 1024]], 1024, 1, 1, 128, BF16), RING),
    ("blocks of keys", Case([[0, 1024, 0, 0]], 1024, 1, 1, 128, BF16), RING),
    ("a ragged history", Case([[3, 203, 203, 331]], 331, 1, 1, 128, BF16), RING),
    ("two ranges of rows", Case([[100, 200, 300, 377]], 400, 1, 1, 128, BF16), RING),
    ("heads that share keys", Case([[0, 200, 200, 300]], 300, 4, 1, 128, BF16), RING),
    ("batch rows", Case(MIXED, 1000, 4, 2, 128, BF16), RING),
    ("head_dim 64, one warp group", Case([[0, 64, 64, 64]], 64, 1, 1, 64, BF16), ONE_GROUP),
    ("head_dim 64, two parts", Case([[0, 128, 128, 300]], 300, 1, 1, 64, BF16), TWO_PARTS),
    ("head_dim 64, batch rows", Case(MIXED, 1000, 4, 2, 64, BF16), TWO_PARTS),
    ("float16", Case(MIXED, 1000, 4, 2, 128, F16), RING),
    ("as called by default", Case(MIXED, 1000, 16, 4, 128, BF16), default_config(128)),
    ("head_dim 192, one step, dV alone", Case([[0, 64, 64, 64]], 64, 1, 1, 192, BF16, mute="v"), default_config(192)),
    ("head_dim 192, one step", Case([[0, 64, 64, 64]], 64, 1, 1, 192, BF16), default_config(192)),
    ("head_dim 192, batch rows", Case(MIXED, 1000, 4, 2, 192, F16), default_config(192)),
    ("head_dim 256, one step", Case([[0, 64, 64, 64]], 64, 1, 1, 256, BF16), default_config(256)),
    ("head_dim 256, a ring", Case([[0, 128, 128, 1024]], 1024, 1, 1, 256, BF16), default_config(256)),
    ("head_dim 256, batch rows", Case(MIXED, 1000, 4, 2, 256, F16), default_config(256)),
]


def climb(first):
    """In a child: one line ahead of each rung, and its verdict behind it."""
    for number, (name, case, config) in list(enumerate(RUNGS))[first:]:
        print(f"BEGIN {number}", flush=True)
        kernel = backward_call.load(kernel_object(*backward(case.head_dim, case.dtype, config)))
        (q, k, v, dout), bounds = case.tensors("cuda")
        (out, lse), wanted = expected(case, q, k, v, dout)
        gradients = [torch.full(x.shape, float("nan"), dtype=x.dtype, device="cuda") for x in (q, k, v)]
        scratch = [x.fill_(float("nan")) for x in backward_call.scratch(q, config["tile_m"])]
        given = q, k, v, out.to(q.dtype), dout, lse.contiguous(), None
        kernel(*given, *gradients, *scratch, bounds, None, case.scale, None)
        torch.cuda.synchronize()
        lines = faults(case, gradients, wanted, config["tile_m"], config["tile_n"])
        print("\n".join([f"{number:2} {name}: {'WRONG' if lines else 'right'}", *lines]), flush=True)


def watch(first):
    """Run a child from a rung on; the rung where it died or went silent, or None."""
    command = [sys.executable, "-u", __file__, "--climb", str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    reached = first
    timer = threading.Timer(PATIENCE_S, child.kill)
    timer.start()
    for line in child.stdout:
        if line.startswith("BEGIN"):
            reached = int(line.split()[1])
            timer.cancel()
            timer = threading.Timer(PATIENCE_S, child.kill)
            timer.start()
        else:
            print(line, end="", flush=True)
    code = child.wait()
    timer.cancel()
    if code == 0:
        return None
    print(f"{reached:2} {RUNGS[reached][0]}: {'HANGS' if code == -9 else f'CRASHED with {code}'}", flush=True)
    return reached


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--climb", type=int)
    options = parser.parse_args()
    if options.climb is not None:
        return climb(options.climb)
    compile_ahead(backward(case.head_dim, case.dtype, config) for _, case, config in RUNGS[options.first :])
    first = options.first
    while first is not None and first < len(RUNGS):
        stopped = watch(first)
        first = None if stopped is None else stopped + 1
    return None


if __name__ == "__main__":
    main()
