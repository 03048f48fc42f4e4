"""How much of a space does a strategy try, and how far is the best that it finds from the best there is?

    python benchmarks/strategies.py JOURNAL... [--workers 15] [--seeds 200]

Takes journals of exhaustive sweeps and simulates the screening that a strategy would have run: compile workers that
take as long as they took then, and a device that takes candidates one after the other as they get ready. `guided` is
run as it is, with its prediction shuffled between candidates, without it, and with the values of parameters in another
order: what holds there too was not made for these journals. `random` tries as many candidates, over many seeds.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attnctl.gpu.protocol import Result
from attnctl.profile.candidate import case_of, default_candidate, profile_candidate
from attnctl.profile.load import load
from attnctl.profile.lookup import case_for
from attnctl.tune.finals import ranked
from attnctl.tune.journal import OutcomeRecord, read
from attnctl.tune.space import Space
from attnctl.tune.strategies import Stop, Strategy, get_strategy
from attnctl_kernels.contract import Candidate, Outcome
from attnctl_kernels.families import get_family

PROFILES = Path(__file__).parents[1] / "profiles"
COLUMNS = ("problem", "variant", "candidates", "tried", "share", "regret", "worst", "screening")


@dataclass(frozen=True, slots=True)
class Recording:
    """An exhaustive sweep, and the space that it swept."""

    name: str
    space: Space
    results: Mapping[str, Result]

    @property
    def best_us(self) -> float:
        return _best_us(self.results, self.results)


@dataclass(frozen=True, slots=True)
class Simulated:
    """One screening. ``seconds`` counts from the first compiler's start; ``busy`` is the device's share of it."""

    tried: tuple[str, ...]
    regret: float  # of the best that was tried, over the best of the recording
    seconds: float
    busy: float


def recording(path: Path, profiles: Path = PROFILES) -> Recording:
    """The journal at ``path``, and what it holds as a space: the family may offer other candidates by now."""
    recorded = read(path)
    found = (each for each in profiles.rglob(f"{recorded.header.profile}.yaml") if "tuned" not in each.parts)
    loaded = load(next(found))
    assert loaded.profile is not None, loaded.path
    task = recorded.header.task
    fixed = loaded.profile.sparse_block_of(task.pass_name)
    case, family = case_for(loaded, task), get_family(task.family)
    results = {
        key: each.result for key, each in recorded.outcomes.items() if each.result.outcome is not Outcome.SKIPPED
    }
    candidates = {key: recorded.outcomes[key].candidate for key in results}
    predicted = {key: family.predicted_cost(case_of(case, each)) for key, each in candidates.items()}
    first = default, incumbent = default_candidate(case, fixed), profile_candidate(case)
    ordered = sorted(candidates.values(), key=lambda each: (each not in first, predicted[each.key]))
    space = Space(case, tuple(ordered), (), default, incumbent, predicted=predicted)
    return Recording(path.name.partition(".")[0], space, results)


def simulate(it: Recording, strategy: Strategy, workers: int, noise: float = 0.0, seed: int = 0) -> Simulated:
    """Screen ``it``; ``noise`` is the standard deviation of a median's logarithm."""
    rng = random.Random(seed)
    factors = {key: math.exp(noise * rng.gauss(0, 1)) for key in it.results}
    choose = strategy.start(it.space)
    tried: dict[str, Result] = {}
    pending: dict[str, Candidate] = {}
    ready: list[tuple[float, int, str]] = []  # compiled at, in the order of submission
    free = [0.0] * workers
    device, measuring, stop = 0.0, 0.0, None
    room = len(it.space.candidates) if strategy.lookahead is None else workers + strategy.lookahead
    submitted = 0
    while True:
        while stop is None and len(pending) < room:
            required = [each for each in it.space.required if each.key not in tried and each.key not in pending]
            choice = required[0] if required else choose(tried, pending)
            if isinstance(choice, Stop):
                stop = choice
                break
            begun = max(heapq.heappop(free), device if submitted >= room else 0.0)
            done = begun + _compile_s(it.results[choice.key])
            heapq.heappush(free, done)
            heapq.heappush(ready, (done, submitted, choice.key))
            pending[choice.key] = choice
            submitted += 1
        if not ready or (stop is not None and not stop.wait):
            break
        compiled, _, key = heapq.heappop(ready)
        seconds = _measure_s(it.results[key])
        device, measuring = max(device, compiled) + seconds, measuring + seconds
        del pending[key]
        tried[key] = _scaled(it.results[key], factors[key])
        stop = None
    regret = _best_us(it.results, tried) / it.best_us - 1
    return Simulated(tuple(tried), regret, device, measuring / device if device else 0.0)


def variants(it: Recording, seed: int) -> Iterator[tuple[str, Recording]]:
    """The same times behind other predictions and other parameters."""
    rng = random.Random(seed)
    keys, costs = list(it.space.predicted), list(it.space.predicted.values())
    rng.shuffle(costs)
    yield "prediction shuffled", replace(it, space=replace(it.space, predicted=dict(zip(keys, costs, strict=True))))
    yield "no prediction", replace(it, space=replace(it.space, predicted=dict.fromkeys(keys, 0.0)))
    yield "values permuted", permuted(it, rng)


def permuted(it: Recording, rng: random.Random) -> Recording:
    """Every parameter's values in another order: time and prediction belong to another config, by one renaming."""
    mapping: dict[str, dict[object, object]] = {}
    for name in dict.fromkeys(name for each in it.space.candidates for name in each.config):
        values = list(dict.fromkeys(each.config[name] for each in it.space.candidates if name in each.config))
        mapping[name] = dict(zip(values, rng.sample(values, len(values)), strict=True))

    def renamed(candidate: Candidate) -> str:
        config = {name: mapping[name][value] for name, value in candidate.config.items()}
        return str(sorted(config.items()))

    by_config = {str(sorted(each.config.items())): each for each in it.space.candidates}
    # A combination that a rule forbids has no time: its own stays.
    moved = {each.key: by_config.get(renamed(each), each).key for each in it.space.candidates}
    predicted = {key: it.space.predicted[source] for key, source in moved.items()}
    results = {key: it.results[source] for key, source in moved.items()}
    return replace(it, space=replace(it.space, predicted=predicted), results=results)


def _best_us(results: Mapping[str, Result], keys: Mapping[str, Result]) -> float:
    """The best true time among ``keys``, of those that finals would look at."""
    records = [OutcomeRecord(candidate=Candidate(config={"key": key}), result=results[key]) for key in keys]
    timing = ranked(records)[0].result.timing
    assert timing is not None
    return timing.median_us


def _scaled(result: Result, factor: float) -> Result:
    if result.timing is None:
        return result
    timing = result.timing.model_copy(update={"median_us": result.timing.median_us * factor})
    return result.model_copy(update={"timing": timing})


def _compile_s(result: Result) -> float:
    return result.compiled.seconds if result.compiled else result.seconds.get("compile", 0.0)


def _measure_s(result: Result) -> float:
    return sum(seconds for phase, seconds in result.seconds.items() if result.compiled or phase != "compile")


def row(name: str, variant: str, count: int, runs: Sequence[Simulated]) -> str:
    tried = statistics.mean(len(each.tried) for each in runs)
    regrets = [each.regret for each in runs]
    seconds = statistics.mean(each.seconds for each in runs)
    cells = (name, variant, str(count), f"{tried:.1f}", f"{tried / count:.0%}")
    return f"| {' | '.join(cells)} | {statistics.mean(regrets):.2%} | {max(regrets):.2%} | {seconds:.0f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=15, help="compile workers")
    parser.add_argument("--seeds", type=int, default=200, help="of random; the variants take a tenth")
    parser.add_argument("--noise", type=float, default=0.003, help="of a median, in the variants")
    parser.add_argument("--strategy", default="guided")
    arguments = parser.parse_args()
    strategy = get_strategy(arguments.strategy)
    recordings = [recording(path) for path in arguments.journals]
    print(f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", sep="\n")
    ratios = []
    for it in recordings:
        count = len(it.space.candidates)
        everything = simulate(it, get_strategy("exhaustive"), arguments.workers)
        print(row(it.name, "exhaustive", count, [everything]))
        found = simulate(it, strategy, arguments.workers)
        ratios.append(1 + found.regret)
        print(row(it.name, arguments.strategy, count, [found]))
        seeds = range(max(1, arguments.seeds // 10))
        by_variant: dict[str, list[Simulated]] = {}
        for seed in seeds:
            for name, variant in (("noise", it), *variants(it, seed)):
                by_variant.setdefault(name, []).append(
                    simulate(variant, strategy, arguments.workers, arguments.noise, seed)
                )
        for name, runs in by_variant.items():
            print(row(it.name, name, count, runs))
        samples = max(0, len(found.tried) - len(it.space.required))
        same = [get_strategy(f"random:samples={samples},seed={seed}") for seed in range(arguments.seeds)]
        print(
            row(it.name, "random, as many", count, [simulate(it, each, arguments.workers) for each in same]), flush=True
        )
    mean = statistics.geometric_mean(ratios) - 1
    print(f"\n{arguments.strategy}: regret {mean:.3%} in the geometric mean of {len(ratios)} problems")


if __name__ == "__main__":
    main()
