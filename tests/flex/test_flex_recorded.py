"""A sweep that ran on an H200 (torch 2.11, Triton 3.6), held against the rules and the resource model.

It was cut off after 62 of 68 candidates, before the finals: it decides nothing.
"""

from pathlib import Path

import pytest

from attnctl.profile.candidate import case_of, errors
from attnctl.profile.load import load
from attnctl.profile.problems import cases
from attnctl.tune.journal import read
from attnctl_kernels.contract import Outcome
from attnctl_kernels.families import get_family

ROOT = Path(__file__).parents[2]
RECORDED = read(ROOT / "tests/data/journals/flex/flex-ranker-8k.jsonl.gz")
FAMILY = get_family("flex")


@pytest.fixture(scope="module")
def case():
    (only,) = cases(load(ROOT / "profiles/flex-ranker-8k.yaml").profile)
    return only


def results():
    for each in RECORDED.outcomes.values():
        yield each.candidate, each.result


def test_rules_foresee_the_failure_and_drop_nothing_that_ran(case):
    failed = [candidate for candidate, result in results() if result.outcome is not Outcome.OK]
    dropped = [candidate for candidate, _ in results() if errors(case_of(case, candidate))]
    assert dropped == failed
    assert len(failed) == 1
    ((rule, violation),) = errors(case_of(case, failed[0]))
    assert rule.code == "FLEX-021"
    assert "a tile of 256 x 128 with 3 stages needs at least 262144 bytes of 232448" in violation.message


def test_shared_memory_is_what_the_compiler_said_to_the_byte(case):
    ran = [(candidate, result) for candidate, result in results() if result.compiled]
    assert len(ran) == 61
    for candidate, result in ran:
        (memory,) = FAMILY.resources(case_of(case, candidate))
        assert memory.used == result.compiled.resources["smem_bytes"], candidate.config


def test_predicted_cost_puts_a_fast_candidate_among_the_first(case):
    """The best of the first third, in the order of the queue, is within 3 % of the best of all."""
    timed = {candidate.key: (candidate, result.timing) for candidate, result in results() if result.timing}
    queue = sorted((FAMILY.predicted_cost(case_of(case, candidate)), key) for key, (candidate, _) in timed.items())
    first = [timed[key][1].median_us for _, key in queue[: len(queue) // 3]]
    best = min(timing.median_us for _, timing in timed.values())
    assert min(first) <= 1.03 * best
