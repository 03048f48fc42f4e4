"""A small share of what `python tests/fuzz/fuzz.py` runs by the million; a new seed finds other faults."""

import pytest
from fuzz import GROWTH_MB, KEPT_INPUTS, fuzz, watched
from fuzz_mutate import Mutator
from fuzz_targets import TARGETS

COUNTS = {"profile": 2000, "message": 6000, "layout": 700}


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_too_broken(name, tmp_path):
    with watched():
        ran = fuzz(TARGETS[name], COUNTS[name], 1, tmp_path)
    assert ran.answers > 25  # the inputs come further than the first check
    assert ran.end_mb < ran.warm_mb + GROWTH_MB


@pytest.mark.parametrize(("name", "path"), KEPT_INPUTS, ids=lambda each: getattr(each, "name", each))
def test_what_once_broke_something(name, path, tmp_path):
    TARGETS[name].run(path.read_bytes(), tmp_path)


def test_a_seed_gives_the_same_inputs_again():
    data, other = b"family: fa4\nproblem: {seq_len: 1000}\n", b"arch: sm_90\n"
    first, second = (Mutator(7, TARGETS["profile"].tokens) for _ in range(2))
    inputs = [first.mutate(data, other) for _ in range(50)]
    assert inputs == [second.mutate(data, other) for _ in range(50)]
    assert len(set(inputs)) > 40
