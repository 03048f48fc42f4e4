"""Draw configs of the ranker kernel with shapes and masks: each is refused by a rule, or right.

    python benchmarks/ranker_random.py --count 1000 --seconds 300 --json random.json
    python benchmarks/ranker_random.py --only 417                    one of them again
    compute-sanitizer --tool memcheck  python benchmarks/ranker_random.py --count 40 --small --processes 8
    compute-sanitizer --tool racecheck python benchmarks/ranker_random.py --count 10 --small --processes 8
    compute-sanitizer --tool synccheck python benchmarks/ranker_random.py --count 10 --small --processes 8

Needs a Hopper GPU and the extra ranker. The parameters are drawn from beyond what the rules allow. Each draw has a
number, from which it follows. What is right is float32 attention; padding holds NaN. Under compute-sanitizer, compile
first (the same command without it, or with ``--compile-only``), and the kernels are found on disk.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attnctl_kernels.contract import Case, Mask, Problem, Scalar
from attnctl_kernels.families import get_family
from attnctl_kernels.masks import visible
from attnctl_kernels.ranker import attention
from attnctl_kernels.ranker import config as own
from attnctl_kernels.rule import Severity, check

FAMILY = get_family("ranker")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Draw(NamedTuple):
    number: int
    problem: Problem
    bounds: list[list[int]] | None  # None: rows see ranges
    cap: float | None
    config: dict[str, Scalar]

    @property
    def kernel(self) -> tuple[int, str, bool, bool, str]:
        ranges, config = self.bounds is None, json.dumps(self.config, sort_keys=True)
        return self.problem.head_dim, self.problem.dtype, ranges, self.cap is not None, config

    def refusal(self) -> str:
        case = Case(
            family="ranker",
            version="1",
            arch="sm_90",
            problem=self.problem,
            pass_name="forward",
            config=self.config,
        )
        broken = [rule.code for rule, _ in check(case, FAMILY.rules()) if rule.severity is Severity.ERROR]
        return broken[0] if broken else ""


def drawn(number: int, *, small: bool) -> Draw:
    draw = random.Random(number)
    longest = 200 if small else 1500
    seqlen, heads = draw.randint(1, longest), draw.randint(1, 2)
    bounds, mask, keys = None, Mask(pattern="history_candidate", history_len=seqlen), seqlen
    batch_size = draw.randint(1, 3)
    if draw.random() < 0.5:
        bounds = [random_bounds(draw, seqlen) for _ in range(batch_size)]
    else:
        keys = draw.choice([seqlen, draw.randint(1, longest)])
        mask = random_mask(draw, keys)
    head_dim = draw.choice([64, 64, 96, 128, 128, 128, 192, 256])
    problem = Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=keys,
        num_heads_q=heads * draw.choice([1, 4, 8]),
        num_heads_kv=heads,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=draw.choice(list(DTYPES)),
        mask=mask,
    )
    config: dict[str, Scalar] = {
        "tile_m": draw.choice([64, 64, 64, 96, 128, 128, 128, 192, 192, 192]),
        "tile_n": draw.choice([16, 40, *range(32, 273, 16), *range(32, 145, 16)]),
        "stages": draw.choice([1, *[2] * 8, 3, 3, 3, 4, 5, 8]),
        "turns": draw.random() < 0.7,
        "persistent": draw.random() < 0.8,
        "schedule": draw.choice(own.SCHEDULES),
        "balanced": draw.random() < 0.5,
    }
    return Draw(number, problem, bounds, draw.choice([None, None, 5.0, 30.0]), config)


def random_bounds(draw: random.Random, seqlen: int) -> list[int]:
    a, b, c, d = sorted(draw.randint(-2, seqlen + 2) for _ in range(4))
    return draw.choice([[a, b, c, d], [c, d, a, b], [a, c, b, d], [0, b, b, seqlen], [0, 0, 0, d], [0, 0, 0, 0]])


def random_mask(draw: random.Random, keys: int) -> Mask:
    return draw.choice(
        [
            Mask(pattern="dense"),
            Mask(pattern="causal"),
            Mask(pattern="sliding_window", window=draw.randint(1, keys)),
            Mask(pattern="document", document_len=draw.randint(1, keys), causal=draw.random() < 0.5),
            Mask(pattern="prefix_lm", prefix_len=draw.randint(0, keys)),
        ]
    )


def blind(cache: str) -> None:
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "ATTNCTL_CACHE_DIR": cache})


def compile_kernel(head_dim: int, dtype: str, ranges: bool, capped: bool, config: str) -> None:
    from attnctl_kernels.ranker.sm90 import build  # noqa: PLC0415 - imports cutlass

    traits = build.forward_traits(head_dim, dtype, json.loads(config), ranges=ranges, capped=capped)
    build.forward_object(traits, Path(os.environ["ATTNCTL_CACHE_DIR"]) / "ranker")


def seen_pairs(draw: Draw) -> torch.Tensor:
    """``(batch_size or 1, seqlen_q, seqlen_k)``."""
    if draw.bounds is None:
        lengths = draw.problem.seqlen_q, draw.problem.seqlen_k
        rows, columns = torch.arange(lengths[0])[:, None].numpy(), torch.arange(lengths[1]).numpy()
        return torch.from_numpy(visible(draw.problem.mask, rows, columns, *lengths)).cuda()[None]
    position, pairs = torch.arange(draw.problem.seqlen_q, device="cuda"), []
    for h_lo, h_hi, c_lo, c_hi in draw.bounds:
        history = (h_lo <= position) & (position < h_hi)
        candidate = (c_lo <= position) & (position < c_hi) & ~history
        pairs.append(((history | candidate)[:, None] & history) | torch.diag(candidate))
    return torch.stack(pairs)


def reference(inputs: list[torch.Tensor], seen: torch.Tensor, cap: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = inputs
    k, v = (x.float().repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q.float(), k) / math.sqrt(q.shape[-1])
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~seen[:, None], -math.inf)
    lse = scores.logsumexp(-1)
    return torch.einsum("bhij,bjhd->bihd", (scores - lse.nan_to_num(neginf=0.0)[..., None]).exp(), v), lse


def fault(draw: Draw) -> str:
    """What is wrong with the kernel's result; empty: nothing is."""
    problem = draw.problem
    torch.manual_seed(draw.number)
    shapes = ((problem.seqlen_q, problem.num_heads_q), *[(problem.seqlen_k, problem.num_heads_kv)] * 2)
    clean = [
        torch.randn(problem.batch_size, *each, problem.head_dim, device="cuda").to(DTYPES[problem.dtype])
        for each in shapes
    ]
    seen, given = seen_pairs(draw), clean
    if draw.bounds is not None:  # what sees nothing is seen by nothing
        given = [x.masked_fill(~seen.any(-1)[..., None, None], math.nan) for x in clean]
    what: Mapping[str, Any] = {"mask": draw.problem.mask}
    if draw.bounds is not None:
        what = {"bounds": torch.tensor(draw.bounds, dtype=torch.int32, device="cuda")}
    runs = [attention(*given, config=draw.config, logit_cap=draw.cap, return_lse=True, **what) for _ in range(2)]
    for name, found, again, wanted in zip(("out", "lse"), *runs, reference(clean, seen, draw.cap), strict=True):
        if not torch.equal(found, again):
            return f"{name}: two runs differ"
        apart = (found.float() - wanted).abs()
        allowed = (
            0.008 * wanted.abs() + (0.012 if draw.cap else 0.008) if name == "out" else 1e-3 + (draw.cap or 0) / 1000
        )
        wrong = ~(apart <= allowed) & (found.float() != wanted)  # equal infinities are right
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            return f"{name}: {int(wrong.sum())} wrong, first at {index}: {found[index]} instead of {wanted[index]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one draw")
    parser.add_argument("--small", action="store_true", help="up to 200 tokens")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile")
    parser.add_argument("--compile-only", action="store_true", help="needs no device; a later run finds the kernels")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    os.environ.setdefault("ATTNCTL_CACHE_DIR", str(Path(".attnctl/cache").absolute()))
    numbers = range(options.count) if options.only is None else [options.only]
    refused: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    allowed = []
    for draw in (drawn(number, small=options.small) for number in numbers):
        if code := draw.refusal():
            refused[code] += 1
        else:
            allowed.append(draw)
    pool = ProcessPoolExecutor(options.processes, get_context("spawn"), blind, (os.environ["ATTNCTL_CACHE_DIR"],))
    kernels: dict[Any, Future[None]] = {draw.kernel: pool.submit(compile_kernel, *draw.kernel) for draw in allowed}
    for draw in allowed:
        try:
            kernels[draw.kernel].result(timeout=max(0.0, end - time.monotonic()))
            reason = "" if options.compile_only else fault(draw)
        except OutOfTime:
            outcomes["out of time"] += 1
            continue
        except Exception as error:  # noqa: BLE001 - one that fails is what this looks for
            reason = f"{type(error).__name__}: {error}"[:300]
        outcomes["wrong" if reason else "compiled" if options.compile_only else "right"] += 1
        if reason:
            wrong[draw.number] = reason
            print(f"{draw}\n  {reason}", flush=True)
            if "CUDA error" in reason:
                break  # the device is of no more use to this process
    processes = list(pool._processes.values())  # noqa: SLF001 - those in the middle of a kernel do not stop by themselves
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with suppress(Exception):
            process.kill()
    summary = {"drawn": len(numbers), "refused": dict(refused), **outcomes, "faults": wrong}
    print(json.dumps(summary))
    if options.json:
        options.json.write_text(json.dumps(summary))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
