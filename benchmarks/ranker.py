"""Time the ranker kernel's tiles against flash-attn-4 and FlexAttention, on the masks that docs/kernels.md reports.

    python benchmarks/ranker.py --json ranker.json
    python benchmarks/ranker.py --head-dim 128 --case 8192 --families ranker fa4 --cycles 100
    python benchmarks/ranker.py --pass backward --json ranker-backward.json

Needs a Hopper GPU, and the extras ranker and fa4. Compiles on all cores first, then times each case: every candidate
in a screening, then the best of each family, and the ranker's default, interleaved, each call with a cold L2. Stops
when ``--seconds`` are over; what has been measured until then stands. Another checkout's kernel: the same command
there, by turns with this one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attnctl_kernels import reference
from attnctl_kernels.contract import Candidate, Case, Inputs, Mask, PassName, Problem, Scalar, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.masks import count_visible
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker.spec import by_ranges
from attnctl_kernels.rule import Severity, check

HEADS = 16
WINDOW = 1024
FLUSH_BYTES = 1 << 27  # more than twice the L2 of an H200
HISTORIES = ((2, 8192, 2048), (2, 8192, 6144), (4, 4096, 512), (8, 2048, 256))  # batch size, tokens, history
FA4_TILES = {128: ((128, 128), (192, 128), (128, 160), (128, 96)), 64: ((192, 128), (128, 128), (192, 96), (192, 64))}
FA4_AND_FLEX = ("fa4", "flex")
FLEX_TILES = ((128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3))  # BLOCK_M, BLOCK_N, warps, stages
COMPILING = 0.6  # of the time that there is
OUTPUTS: dict[PassName, tuple[str, ...]] = {"forward": ("out",), "backward": ("dq", "dk", "dv")}
OPERATIONS: dict[PassName, int] = {"forward": 4, "backward": 10}  # per visible pair, head and column
FINALISTS = {"ranker": 3}  # of each other family one

Call = Callable[[], None]


class Entry(NamedTuple):
    family: str
    candidate: Candidate
    pass_name: PassName

    def __str__(self) -> str:
        return f"{self.family} {self.candidate}"


def problems(head_dims: Sequence[int], pass_name: PassName) -> Iterator[Problem]:
    for head_dim in head_dims:
        for batch_size, seqlen, history in HISTORIES:
            yield problem_of(batch_size, seqlen, head_dim, Mask(pattern="history_candidate", history_len=history))
        yield problem_of(2, 8192, head_dim, Mask(pattern="sliding_window", window=WINDOW))
        if pass_name == "backward":
            yield problem_of(2, 8192, head_dim, Mask(pattern="causal"))


def problem_of(batch_size: int, seqlen: int, head_dim: int, mask: Mask) -> Problem:
    return Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=seqlen,
        num_heads_q=HEADS,
        num_heads_kv=HEADS,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype="bfloat16",
        mask=mask,
    )


def ranker_configs(problem: Problem) -> Iterator[dict[str, Scalar]]:
    """The default, and of each number of rows and stages the two widest tiles that fit, and 128."""
    ranges, head_dim = by_ranges(problem), problem.head_dim
    default = own.default_config(head_dim, ranges=ranges)
    yield default
    yield {**default, "balanced": True}
    for tile_m in (128, 192):
        for stages in (2, 3):
            config = {**default, "tile_m": tile_m, "stages": stages}
            fitting = [
                tile_n
                for tile_n in own.TILES_N
                if own.LEAST_KEYS <= tile_n <= 176
                and own.smem_bytes(head_dim, {**config, "tile_n": tile_n}, ranges=ranges) <= own.SMEM_LIMIT
                and own.fragment_registers(head_dim, {**config, "tile_n": tile_n}) <= own.register_limit(config)
            ]
            for tile_n in {*fitting[-2:], *({128} & set(fitting))}:
                yield {**config, "tile_n": tile_n}
                if stages == default["stages"]:
                    yield {**config, "tile_n": tile_n, "balanced": True}


def fa4_candidates(problem: Problem) -> Iterator[Candidate]:
    default = get_family("fa4").default_config(problem, "forward", "sm_90", (128, 128))
    for tile in FA4_TILES.get(problem.head_dim, ((int(default["tile_m"]), int(default["tile_n"])),)):
        config = {"tile_m": tile[0], "tile_n": tile[1], "mma_pv_is_rs": tile[0] * tile[1] < 192 * 128}
        config |= {"intra_wg_overlap": True}
        yield Candidate(config=config, sparse_block=tile)
        if problem.mask.pattern == "sliding_window":
            yield Candidate(config={**config, "mask_form": "native"})


def candidates_forward(problem: Problem) -> dict[str, list[Candidate]]:
    flex = [dict(zip(("BLOCK_M", "BLOCK_N", "num_warps", "num_stages"), tile, strict=True)) for tile in FLEX_TILES]
    return {
        "ranker": [Candidate(config=config) for config in ranker_configs(problem)],
        "fa4": list(fa4_candidates(problem)),
        "flex": [Candidate(config=config, sparse_block=(128, 128)) for config in flex],
    }


def candidates_backward(problem: Problem) -> dict[str, list[Candidate]]:
    """The whole space of the ranker; of the others their defaults, fa4's also on the finest blocks.

    There it is as fast with dQ transposed (profiles/tuned/nvidia_h200/ranker-8k-backward.yaml has the one, and won by
    taking less).
    """
    default = {name: get_family(name).default_config(problem, "backward", "sm_90", (128, 128)) for name in FA4_AND_FLEX}
    space = get_family("ranker").space(problem, "backward", "sm_90")
    ours = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    first = get_family("ranker").default_config(problem, "backward", "sm_90", None)
    finest = int(default["fa4"]["tile_m"]), int(default["fa4"]["tile_n"])
    return {
        "ranker": [Candidate(config=config) for config in (first, *ours)],
        "fa4": [
            Candidate(config=default["fa4"], sparse_block=(128, 128)),
            *(
                Candidate(config={**default["fa4"], "subtile_factor": 1, "dQ_swapAB": swap}, sparse_block=finest)
                for swap in (False, True)
            ),
        ],
        "flex": [Candidate(config=default["flex"], sparse_block=(128, 128))],
    }


def entries(problem: Problem, families: Sequence[str], pass_name: PassName) -> Iterator[Entry]:
    """What the family's rules allow, each once."""
    candidates = (candidates_forward if pass_name == "forward" else candidates_backward)(problem)
    for name in families:
        family, met = get_family(name), set()
        for candidate in candidates[name]:
            entry = Entry(name, candidate, pass_name)
            case = case_of(problem, entry)
            broken = [rule for rule, _ in check(case, family.rules()) if rule.severity is Severity.ERROR]
            if not broken and candidate.key not in met:
                met.add(candidate.key)
                yield entry


def case_of(problem: Problem, entry: Entry) -> Case:
    return Case(
        family=entry.family,
        version=get_family(entry.family).versions[-1],
        arch="sm_90",
        problem=problem,
        pass_name=entry.pass_name,
        config=entry.candidate.config,
        sparse_block=entry.candidate.sparse_block,
    )


def task_of(problem: Problem, entry: Entry) -> Task:
    return Task(family=entry.family, version=None, arch="sm_90", pass_name=entry.pass_name, problem=problem)


def blind(cache: str) -> None:
    """A process that compiles sees no device."""
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "ATTNCTL_TARGET_ARCH": "sm_90"})
    os.environ["ATTNCTL_CACHE_DIR"] = cache


def compile_one(text: str, candidate: str) -> float:
    task = Task.model_validate_json(text)
    compiled = get_family(task.family).launcher().compile(task, Candidate.model_validate_json(candidate))
    return compiled.seconds if compiled else 0.0


def compile_all(work: Sequence[tuple[Problem, Entry]], seconds: float) -> dict[tuple[str, str], str]:
    """Why what was not compiled was not, by problem and entry."""
    pool = ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), blind, (os.environ["ATTNCTL_CACHE_DIR"],))
    futures: dict[tuple[str, str], Future[float]] = {}
    kernels: dict[Any, Future[float]] = {}
    for problem, entry in work:
        # A kernel that serves several problems is compiled for the first of them, and found on disk by the others.
        key = entry.family, entry.candidate.key, get_family(entry.family).kernel_key(case_of(problem, entry))
        if key not in kernels:
            arguments = task_of(problem, entry).model_dump_json(), entry.candidate.model_dump_json()
            kernels[key] = pool.submit(compile_one, *arguments)
        futures[problem.slug + str(problem.mask), str(entry)] = kernels[key]
    wait(kernels.values(), timeout=seconds)
    processes = list(pool._processes.values())  # noqa: SLF001 - a compiler in the middle of a kernel does not stop by itself
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with suppress(Exception):
            process.kill()
    return {key: reason for key, future in futures.items() if (reason := why_not(future))}


def why_not(future: Future[float]) -> str:
    if not future.done() or future.cancelled():
        return "not compiled in time"
    error = future.exception()
    return "" if error is None else f"{type(error).__name__}: {error}"[:200]


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


def bound(problem: Problem, several: Sequence[Entry], failed: dict[str, str]) -> dict[str, tuple[Entry, Any]]:
    inputs = inputs_of(problem, several[0].pass_name)
    calls = {}
    for entry in several:
        try:
            call = get_family(entry.family).launcher().bind(task_of(problem, entry), entry.candidate, inputs)
            call.run()
            torch.cuda.synchronize()
            calls[str(entry)] = entry, call
        except Exception as error:  # noqa: BLE001 - one that fails must not cost the others their measurement
            failed[str(entry)] = f"{type(error).__name__}: {error}"[:200]
    return calls


def inputs_of(problem: Problem, pass_name: PassName) -> Inputs:
    torch.manual_seed(0)
    shape = problem.batch_size, problem.seqlen_q, HEADS, problem.head_dim
    q, k, v, dout = (torch.randn(shape, device="cuda").bfloat16() for _ in range(4))
    if pass_name == "forward":
        return Inputs(q, k, v)
    out, lse = reference.forward(q, k, v, problem.mask)
    return Inputs(q, k, v, out.bfloat16().contiguous(), lse.contiguous(), dout)  # as compiled programs ask for


def measure(problem: Problem, several: Sequence[Entry], failed: dict[str, str], cycles: int) -> dict[str, Any]:
    calls = bound(problem, several, failed)
    screened = medians_us({name: call.run for name, (_, call) in calls.items()}, 10)
    ordered = sorted(screened, key=screened.__getitem__)
    finals = [name for name, (entry, _) in calls.items() if entry.family == "ranker"][:1]  # the default comes first
    for family in {entry.family for entry, _ in calls.values()}:
        best = [name for name in ordered if calls[name][0].family == family]
        finals += [name for name in best[: FINALISTS.get(family, 1)] if name not in finals]
    which = several[0].pass_name
    times = medians_us({name: calls[name][1].run for name in finals}, cycles)
    visible = count_visible(problem.mask, problem.seqlen_q, problem.seqlen_k)
    return {
        "problem": problem.slug,
        "mask": problem.mask.model_dump(exclude_none=True),
        "flop": OPERATIONS[which] * problem.batch_size * HEADS * problem.head_dim * visible,
        "finals_us": {name: round(times[name], 2) for name in sorted(times, key=times.__getitem__)},
        "screening_us": {name: round(screened[name], 1) for name in ordered},
        "apart": furthest([calls[name][1] for name in finals], OUTPUTS[which]),
        "failed": failed,
    }


def furthest(calls: Sequence[Any], outputs: Sequence[str]) -> float:
    """The largest difference between the outputs of the finalists: all compute the same."""
    first, *others = [torch.cat([call.outputs()[name].float() for name in outputs]) for call in calls]
    return max((float((first - each).abs().max()) for each in others), default=0.0)


def row(result: Mapping[str, Any]) -> str:
    times: dict[str, float] = result["finals_us"]
    best: dict[str, str] = {}
    for name in times:  # in order of time
        best.setdefault(name.partition(" ")[0], name)
    cells = []
    for family in ("ranker", "fa4", "flex"):
        if name := best.get(family):
            rate = result["flop"] / times[name] / 1e6
            ratio = (
                "" if family == "ranker" or "ranker" not in best else f", {times[name] / times[best['ranker']]:.2f}x"
            )
            cells.append(f"{times[name]:.1f} us, {rate:.0f} TFLOP/s{ratio}; {name.partition(' ')[2]}")
        else:
            cells.append("-")
    facts = [f"{name} {value}" for name, value in result["mask"].items() if isinstance(value, int) and value]
    return f"| {result['problem']} {' '.join(facts)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dim", type=int, nargs="*", default=[128, 64], choices=own.HEAD_DIMS)
    parser.add_argument("--pass", dest="pass_name", choices=list(OUTPUTS), default="forward")
    parser.add_argument(
        "--case", nargs="*", default=[""], help="only problems whose name or mask has one of these in it"
    )
    parser.add_argument("--families", nargs="*", default=["ranker", "fa4", "flex"])
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=140.0)
    parser.add_argument("--json", type=Path, help="where all times go")
    options = parser.parse_args()
    begun = time.monotonic()
    os.environ.setdefault("ATTNCTL_CACHE_DIR", str(Path(".attnctl/cache").absolute()))
    chosen = [
        each
        for each in problems(options.head_dim, options.pass_name)
        if any(text in f"{each.slug} {each.mask}" for text in options.case)
    ]
    work = [(problem, entry) for problem in chosen for entry in entries(problem, options.families, options.pass_name)]
    work.sort(key=lambda each: options.families.index(each[1].family))
    missing = compile_all(work, COMPILING * options.seconds)
    print(f"{len(work)} candidates; {len(missing)} not compiled; {time.monotonic() - begun:.0f} s", flush=True)
    print("| problem | ranker | fa4 | flex |\n|---|---|---|---|", flush=True)
    results, reasons = [], []
    for problem in chosen:
        if time.monotonic() - begun > options.seconds:
            print(f"out of time: {problem.slug} and what follows was not measured")
            break
        mine = {str(entry): entry for each, entry in work if each is problem}
        failed = {name: reason for name in mine if (reason := missing.get((problem.slug + str(problem.mask), name)))}
        several = [entry for name, entry in mine.items() if name not in failed]
        try:
            results.append(measure(problem, several, failed, options.cycles))
        except Exception as error:  # noqa: BLE001 - one problem must not cost the others their measurement
            print(f"{problem.slug}: {type(error).__name__}: {error}"[:300], flush=True)
            continue
        print(row(results[-1]), flush=True)
        reasons += [f"{problem.slug}: {name}: {reason}" for name, reason in failed.items()]
        if options.json:
            options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "results": results}))
        torch.cuda.empty_cache()
    print(*reasons, f"{time.monotonic() - begun:.0f} s", sep="\n")


if __name__ == "__main__":
    main()
