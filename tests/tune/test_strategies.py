"""Strategies on sweeps that were recorded on real devices: what they find, and how much they try for it."""

import importlib
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnctl.gpu.protocol import Result
from attnctl.tune.strategies import Stop, get_strategy
from attnctl_kernels.contract import Outcome

ROOT = Path(__file__).parents[2]
JOURNALS = sorted((ROOT / "tests/data/journals").rglob("*.jsonl.gz"))
NAMES = [path.name.removesuffix(".jsonl.gz") for path in JOURNALS]
SMALL = 40


sys.path.insert(0, str(ROOT / "benchmarks"))
strategies = importlib.import_module("strategies")


@pytest.fixture(scope="module")
def recordings():
    return [strategies.recording(path) for path in JOURNALS]


def simulated(it, workers=15, **options):
    return strategies.simulate(it, get_strategy("guided"), workers, **options)


@pytest.mark.parametrize("workers", [1, 4, 15, 31])
@pytest.mark.parametrize("name", NAMES)
def test_guided_finds_the_best_of_every_recorded_sweep_with_a_quarter_of_the_candidates(name, workers, recordings):
    it = recordings[NAMES.index(name)]
    found = simulated(it, workers)
    count = len(it.space.candidates)
    assert found.regret <= 0.01
    assert len(found.tried) <= (count if count <= SMALL else count / 4)
    assert {each.key for each in it.space.required} <= set(found.tried)
    assert len(set(found.tried)) == len(found.tried)


def test_guided_is_within_0_3_percent_in_the_geometric_mean(recordings):
    assert statistics.geometric_mean(1 + simulated(it).regret for it in recordings) <= 1.003


def test_what_guided_knows_is_not_these_journals(recordings):
    """The same times behind a shuffled prediction, none, and other orders of values; noise of 0.3 % on top."""
    regrets = {"random": []}
    for it in recordings:
        if len(it.space.candidates) > SMALL:
            for name, variant in strategies.variants(it, seed=1):
                found = simulated(variant, noise=0.003, seed=1)
                regrets.setdefault(name, []).append(found.regret)
                sample = get_strategy(f"random:samples={len(found.tried) - len(variant.space.required)},seed=1")
                regrets["random"].append(strategies.simulate(variant, sample, 15).regret)
    means = {name: statistics.mean(each) for name, each in regrets.items()}
    assert max(means[name] for name in means if name != "random") <= 0.01
    assert statistics.mean(means[name] for name in means if name != "random") < means["random"] / 2


def test_guided_leaves_a_neighbourhood_that_fails(recordings):
    """Everything with 64 rows is wrong: 36 of 108 candidates."""
    it = recordings[NAMES.index("window-8k-d64")]
    wrong = Result(outcome=Outcome.WRONG_RESULT, reason="out is wrong")
    small = {each.key for each in it.space.candidates if each.config["tile_m"] == 64}
    broken = replace(it, results={key: wrong if key in small else each for key, each in it.results.items()})
    found = simulated(broken, 4)
    assert found.regret <= 0.01
    assert len(small & set(found.tried)) <= 4


def test_the_same_observations_give_the_same_choice(recordings):
    it = recordings[NAMES.index("ranker-8k")]
    tried = dict(list(it.results.items())[:6])
    pending = list(it.results)[6:20]
    first, again = (get_strategy("guided").start(it.space)(tried, pending) for _ in range(2))
    assert first == again
    assert first.key not in {*tried, *pending}


def test_guided_goes_on_with_what_another_run_has_tried(recordings):
    """Its memory is what was tried: one that starts half-way chooses as one that was there from the start."""
    it = recordings[NAMES.index("ranker-8k-short")]
    choose, tried = get_strategy("guided").start(it.space), {}
    for _ in range(10):
        key = choose(tried, ()).key
        tried[key] = it.results[key]
    assert get_strategy("guided").start(it.space)(dict(tried), ()) == choose(tried, ())


def test_guided_says_why_it_stops(recordings):
    it = recordings[NAMES.index("window-8k-d64")]
    tried = dict(sorted(it.results.items(), key=lambda item: item[1].timing.median_us)[:20])
    stop = get_strategy("guided:chance=100").start(it.space)(tried, ())
    assert isinstance(stop, Stop)
    assert stop.reason.startswith("the chance of one more that is 0.5 % faster is ")
    assert not stop.wait
    most = get_strategy("guided:limit=20").start(it.space)(tried, ())
    assert most == Stop("20 of 108 is what guided tries at most")


def test_a_prediction_for_some_is_no_prediction_against_others(recordings):
    """A family may have a model for a part of its configs only: the others are neither best nor worst for that."""
    it = recordings[NAMES.index("window-8k-d64")]
    unknown = {
        each.key: 0.0 if each.config["tile_m"] == 192 else it.space.predicted[each.key] for each in it.space.candidates
    }
    found = simulated(replace(it, space=replace(it.space, predicted=unknown)), 4)
    assert found.regret <= 0.01
    assert math.isfinite(found.seconds)
