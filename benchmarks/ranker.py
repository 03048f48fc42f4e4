"""Time configs of the ranker family against fa4's 128 x 128 tile, on the masks that docs/kernels.md reports.

python benchmarks/ranker.py --head-dim 128 tile_n=64 tile_m=128,tile_n=128

Needs a Hopper GPU, and the extras ranker and fa4.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping

import torch

from attnctl_kernels.contract import Candidate, Inputs, Mask, Problem, Scalar, Task
from attnctl_kernels.fa4.launch import LAUNCHER as FA4
from attnctl_kernels.masks import count_visible
from attnctl_kernels.ranker.config import default_config
from attnctl_kernels.ranker.launch import LAUNCHER as RANKER

CASES = ((2, 8192, 2048), (2, 8192, 6144), (4, 4096, 512), (8, 2048, 256))  # batch size, tokens, history
HEADS = 16
FLUSH_BYTES = 1 << 27  # more than twice the L2 of an H200
Call = Callable[[], None]


def problem_of(batch_size: int, seqlen: int, history: int, head_dim: int) -> Problem:
    return Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=seqlen,
        num_heads_q=HEADS,
        num_heads_kv=HEADS,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype="bfloat16",
        mask=Mask(pattern="history_candidate", history_len=history),
    )


def calls_of(problem: Problem, configs: Mapping[str, dict[str, Scalar]]) -> dict[str, Call]:
    torch.manual_seed(0)
    shape = problem.batch_size, problem.seqlen_q, HEADS, problem.head_dim
    inputs = Inputs(*(torch.randn(shape, device="cuda").bfloat16() for _ in range(3)))
    task = Task(family="ranker", version=None, arch="sm_90", pass_name="forward", problem=problem)
    tile = {"tile_m": 128, "tile_n": 128, "mma_pv_is_rs": True, "intra_wg_overlap": True}
    theirs = Candidate(config=tile, sparse_block=(128, 128))
    calls = {"fa4 128 x 128": FA4.bind(task.model_copy(update={"family": "fa4"}), theirs, inputs).run}
    for name, config in configs.items():
        calls[name] = RANKER.bind(task, Candidate(config=config), inputs).run
    return calls


def medians_us(calls: Mapping[str, Call], cycles: int) -> dict[str, float]:
    """Of interleaved calls, each with a cold L2."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for cycle in range(cycles + 3):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.fill_(1)
            begin.record()
            call()
            end.record()
            if cycle >= 3:  # the first ones warm the clocks up
                pairs[name].append((begin, end))
        torch.cuda.synchronize()
    return {name: statistics.median(1e3 * b.elapsed_time(e) for b, e in each) for name, each in pairs.items()}


def config_of(text: str, head_dim: int) -> dict[str, Scalar]:
    given = dict(part.split("=") for part in text.split(",") if part)
    return {**default_config(head_dim), **{name: int(value) for name, value in given.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", help="NAME=VALUE,...; what is left out is the default")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--cycles", type=int, default=50)
    options = parser.parse_args()
    configs = {text or "default": config_of(text, options.head_dim) for text in ["", *options.configs]}
    for case in CASES:
        problem = problem_of(*case, options.head_dim)
        visible = count_visible(problem.mask, problem.seqlen_q, problem.seqlen_k)
        operations = 4 * problem.batch_size * HEADS * options.head_dim * visible
        for name, us in sorted(
            medians_us(calls_of(problem, configs), options.cycles).items(), key=lambda each: each[1]
        ):
            print(f"{problem.slug} history {case[2]}: {us:8.1f} us {operations / us / 1e6:6.1f} TFLOP/s  {name}")


if __name__ == "__main__":
    main()
