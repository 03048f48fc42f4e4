"""Time a few candidates of ranker-8k on one GPU: a first look at the fa4 launcher, without the tool.

    python benchmarks/fa4_smoke.py

Prints, per candidate: the largest error against fp32 attention on a few rows, the median of CUDA-event times with a
cold L2, effective TFLOP/s (visible pairs only), and the host time of one ``run``.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from attnctl_kernels import masks
from attnctl_kernels.contract import Candidate, CompileError, Inputs, Mask, OutOfResources, Problem, Task
from attnctl_kernels.fa4.launch import LAUNCHER

PROBLEM = Problem(
    batch_size=2,
    seqlen_q=8192,
    seqlen_k=8192,
    num_heads_q=16,
    num_heads_kv=16,
    head_dim=128,
    head_dim_v=128,
    dtype="bfloat16",
    mask=Mask(pattern="history_candidate", history_len=6144),
)
TASK = Task(family="fa4", version=None, arch="sm_90", pass_name="forward", problem=PROBLEM)
CONFIGS = [  # tile_m, tile_n, mma_pv_is_rs, intra_wg_overlap; the last one needs more shared memory than there is
    (128, 128, True, True),
    (128, 128, False, True),
    (128, 176, True, True),
    (192, 128, True, True),
    (64, 128, True, True),
    (128, 192, False, True),
]
ROWS = [0, 1, 127, 128, 6143, 6144, 6145, 8191]


def worst_error(inputs: Inputs, out: torch.Tensor) -> float:
    """Of a few rows of all heads, against softmax in fp32."""
    rows = torch.tensor(ROWS, device=out.device)
    seen = masks.visible(PROBLEM.mask, rows.cpu()[:, None], range(PROBLEM.seqlen_k), PROBLEM.seqlen_q, PROBLEM.seqlen_k)
    scores = torch.einsum("bqhd,bkhd->bhqk", inputs.q[:, rows].float(), inputs.k.float()) / PROBLEM.head_dim**0.5
    scores.masked_fill_(~torch.from_numpy(seen).to(out.device), float("-inf"))
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), inputs.v.float())
    return float((expected - out[:, rows].float()).abs().max())


def timed(call: object, flush: torch.Tensor, samples: int = 60) -> tuple[float, float]:
    """Median microseconds on the device, and host microseconds per call."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    host = 0.0
    for begin, end in events:
        flush.zero_()
        begin.record()
        before = time.perf_counter()
        call.run()
        host += time.perf_counter() - before
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events) * 1e3, host / samples * 1e6


def main() -> int:
    missing = LAUNCHER.available("sm_90")
    if missing:
        print(missing, file=sys.stderr)
        return 4
    print(torch.cuda.get_device_name(), LAUNCHER.versions())
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (PROBLEM.batch_size, PROBLEM.seqlen_q, PROBLEM.num_heads_q, PROBLEM.head_dim)
    inputs = Inputs(*(torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(3)))
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    pairs = masks.count_visible(PROBLEM.mask, PROBLEM.seqlen_q, PROBLEM.seqlen_k)
    flop = 4 * PROBLEM.batch_size * PROBLEM.num_heads_q * PROBLEM.head_dim * pairs
    for tile_m, tile_n, rs, overlap in CONFIGS:
        config = {"tile_m": tile_m, "tile_n": tile_n, "mma_pv_is_rs": rs, "intra_wg_overlap": overlap}
        candidate = Candidate(config=config, sparse_block=(tile_m, tile_n))
        begun = time.perf_counter()
        try:
            call = LAUNCHER.bind(TASK, candidate, inputs)
            bound = time.perf_counter() - begun
            call.poison()
            call.run()
            torch.cuda.synchronize()
            error = worst_error(inputs, call.outputs()["out"])
            device_us, host_us = timed(call, flush)
        except (CompileError, OutOfResources) as failure:
            print(f"{candidate}: {type(failure).__name__}: {failure}")
            continue
        except Exception as failure:  # noqa: BLE001 - the point is to see what a refused launch looks like
            print(f"{candidate}: other: {type(failure).__name__}: {failure}")
            continue
        print(
            f"{candidate}: error {error:.4f}, {device_us:.1f} us, {flop / device_us / 1e6:.0f} TFLOP/s, "
            f"host {host_us:.1f} us per run, bind {bound:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
