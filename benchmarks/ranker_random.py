"""Draw configs of the ranker kernels with shapes and masks: each is refused by a rule, or right.

    python benchmarks/ranker_random.py --count 1000 --seconds 300 --json random.json
    python benchmarks/ranker_random.py --pass backward --count 1000
    python benchmarks/ranker_random.py --only 417                    one of them again
    compute-sanitizer --tool memcheck  python benchmarks/ranker_random.py --count 40 --small --processes 8
    compute-sanitizer --tool racecheck python benchmarks/ranker_random.py --count 10 --small --processes 8
    compute-sanitizer --tool synccheck python benchmarks/ranker_random.py --count 10 --small --processes 8

Needs a Hopper GPU and the extra ranker. The parameters are drawn from beyond what the rules allow. Each draw has a
number, from which it follows. What is right is float32 attention, or its gradients; padding holds NaN. Under
compute-sanitizer, compile first (the same command without it, or with ``--compile-only``), and the kernels are found on
disk. The backward pass has the forward kernel's default config before it.
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

from attnctl_kernels.contract import Case, Mask, PassName, Problem, Scalar
from attnctl_kernels.families import get_family
from attnctl_kernels.masks import visible
from attnctl_kernels.ranker import attention
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker.spec import by_ranges
from attnctl_kernels.rule import Severity, check

FAMILY = get_family("ranker")
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Kernel(NamedTuple):
    """What is compiled."""

    pass_name: PassName
    head_dim: int
    dtype: str
    ranges: bool
    capped: bool
    config: str  # JSON


class Draw(NamedTuple):
    number: int
    pass_name: PassName
    problem: Problem
    bounds: list[list[int]] | None  # None: rows see ranges
    cap: float | None
    config: dict[str, Scalar]

    @property
    def kernels(self) -> list[Kernel]:
        forward, backward = self.configs()
        found = [self._kernel("forward", forward)]
        return found if backward is None else [*found, self._kernel("backward", backward)]

    def configs(self) -> tuple[dict[str, Scalar], dict[str, Scalar] | None]:
        """Of the forward pass, and of the backward pass if it is drawn."""
        if self.pass_name == "forward":
            return self.config, None
        return own.default_config(self.problem.head_dim, ranges=by_ranges(self.problem)), self.config

    def _kernel(self, pass_name: PassName, config: dict[str, Scalar]) -> Kernel:
        ranges, text = self.bounds is None, json.dumps(config, sort_keys=True)
        return Kernel(pass_name, self.problem.head_dim, self.problem.dtype, ranges, self.cap is not None, text)

    def refusal(self) -> str:
        case = Case(
            family="ranker",
            version="1",
            arch="sm_90",
            problem=self.problem,
            pass_name=self.pass_name,
            config=self.config,
        )
        broken = [rule.code for rule, _ in check(case, FAMILY.rules()) if rule.severity is Severity.ERROR]
        return broken[0] if broken else ""


def drawn(number: int, pass_name: PassName, *, small: bool) -> Draw:
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
    config = random_config(draw) if pass_name == "forward" else random_backward_config(draw)
    return Draw(number, pass_name, problem, bounds, draw.choice([None, None, 5.0, 30.0]), config)


def random_config(draw: random.Random) -> dict[str, Scalar]:
    return {
        "tile_m": draw.choice([64, 64, 64, 96, 128, 128, 128, 192, 192, 192]),
        "tile_n": draw.choice([16, 40, *range(32, 273, 16), *range(32, 145, 16)]),
        "stages": draw.choice([1, *[2] * 8, 3, 3, 3, 4, 5, 8]),
        "turns": draw.random() < 0.7,
        "persistent": draw.random() < 0.8,
        "schedule": draw.choice(own.SCHEDULES),
        "balanced": draw.random() < 0.5,
    }


def random_backward_config(draw: random.Random) -> dict[str, Scalar]:
    return {
        "tile_m": draw.choice([64, 64, 64, 96, 128, 128, 128, 192]),
        "tile_n": draw.choice([64, 64, 64, 96, 128, 128, 128, 192]),
        "stages": draw.choice([1, *[2] * 8, 3, 3, 3, 4, 5, 6, 7]),
    }


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


def compile_kernel(kernel: Kernel) -> None:
    from attnctl_kernels.ranker.sm90 import backward_build, build  # noqa: PLC0415 - imports cutlass

    folder, config = Path(os.environ["ATTNCTL_CACHE_DIR"]) / "ranker", json.loads(kernel.config)
    head_dim, dtype, ranges, capped = kernel.head_dim, kernel.dtype, kernel.ranges, kernel.capped
    if kernel.pass_name == "forward":
        build.forward_object(build.forward_traits(head_dim, dtype, config, ranges=ranges, capped=capped), folder)
    else:
        traits = backward_build.backward_traits(head_dim, dtype, config, ranges=ranges, capped=capped)
        backward_build.backward_object(traits, folder)


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
    blind = ~seen.any(-1)[:, None, :, None]  # a row that sees nothing has weights 0, not NaN
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return torch.einsum("bhij,bjhd->bihd", weights, v), scores.logsumexp(-1)


def gradients(out: torch.Tensor, leaves: list[torch.Tensor], dout: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(out, leaves, dout, materialize_grads=True)


def fault(draw: Draw) -> str:
    """What is wrong with the kernel's result; empty: nothing is."""
    problem = draw.problem
    torch.manual_seed(draw.number)
    shapes = ((problem.seqlen_q, problem.num_heads_q), *[(problem.seqlen_k, problem.num_heads_kv)] * 2)
    clean = [
        torch.randn(problem.batch_size, *each, problem.head_dim, device="cuda").to(DTYPES[problem.dtype])
        for each in (*shapes, shapes[0])
    ]
    seen, given = seen_pairs(draw), clean
    if draw.bounds is not None:  # what sees nothing is seen by nothing
        given = [x.masked_fill(~seen.any(-1)[..., None, None], math.nan) for x in clean]
    what: Mapping[str, Any] = {"mask": draw.problem.mask}
    if draw.bounds is not None:
        what = {"bounds": torch.tensor(draw.bounds, dtype=torch.int32, device="cuda")}
    forward, backward = draw.configs()
    what = {**what, "config": forward, "logit_cap": draw.cap}
    if backward is None:
        return fault_of_outputs(draw, given[:3], reference(clean[:3], seen, draw.cap), what)
    leaves = [x.detach().requires_grad_() for x in clean[:3]]
    wanted = gradients(reference(leaves, seen, draw.cap)[0], leaves, clean[3].float())
    return fault_of_gradients(draw, given, wanted, {**what, "backward_config": backward})


def fault_of_outputs(
    draw: Draw, given: list[torch.Tensor], wanted: tuple[torch.Tensor, ...], what: Mapping[str, Any]
) -> str:
    runs = [attention(*given, **what, return_lse=True) for _ in range(2)]
    for name, found, again, other in zip(("out", "lse"), *runs, wanted, strict=True):
        if not torch.equal(found, again):
            return f"{name}: two runs differ"
        allowed = (
            0.008 * other.abs() + (0.012 if draw.cap else 0.008) if name == "out" else 1e-3 + (draw.cap or 0) / 1000
        )
        if text := difference(name, found, other, allowed):
            return text
    return ""


def fault_of_gradients(
    draw: Draw, given: list[torch.Tensor], wanted: tuple[torch.Tensor, ...], what: Mapping[str, Any]
) -> str:
    """Tolerances as those of the tests: weights and their gradients are rounded to 16 bits."""
    leaves = [x.detach().requires_grad_() for x in given[:3]]
    runs = [gradients(attention(*leaves, **what), leaves, given[3]) for _ in range(2)]
    precision = 1.0 if draw.problem.dtype == "bfloat16" else 0.25
    for name, found, again, exact in zip(("dq", "dk", "dv"), *runs, wanted, strict=True):
        if name != "dq" and not torch.equal(found, again):  # sums of dQ are added up in any order
            return f"{name}: two runs differ"
        other = exact.float()
        typical = other.square().mean().sqrt() + other.square().mean(-1, keepdim=True).sqrt()
        if text := difference(name, found, other, (0.03 * other.abs() + 0.1 * typical + 0.01) * precision):
            return text
    return ""


def difference(name: str, found: torch.Tensor, wanted: torch.Tensor, allowed: torch.Tensor | float) -> str:
    wrong = ~((found.float() - wanted).abs() <= allowed) & (found.float() != wanted)  # equal infinities are right
    if not wrong.any():
        return ""
    index = tuple(wrong.nonzero()[0].tolist())
    return f"{name}: {int(wrong.sum())} wrong, first at {index}: {found[index]} instead of {wanted[index]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int, help="the number of one draw")
    parser.add_argument("--pass", dest="pass_name", choices=("forward", "backward"), default="forward")
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
    for draw in (drawn(number, options.pass_name, small=options.small) for number in numbers):
        if code := draw.refusal():
            refused[code] += 1
        else:
            allowed.append(draw)
    pool = ProcessPoolExecutor(options.processes, get_context("spawn"), blind, (os.environ["ATTNCTL_CACHE_DIR"],))
    needed = dict.fromkeys(each for draw in allowed for each in draw.kernels)
    kernels: dict[Kernel, Future[None]] = {each: pool.submit(compile_kernel, each) for each in needed}
    for draw in allowed:
        try:
            for each in draw.kernels:
                kernels[each].result(timeout=max(0.0, end - time.monotonic()))
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
