"""The rules and the space agree: what the rules let through fits, and the default is among it."""

import itertools
from dataclasses import replace

import pytest

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.ranker import config as own
from attnctl_kernels.ranker.spec import FAMILY
from attnctl_kernels.rule import check


def problem(head_dim=128, history=6144, dtype="bfloat16"):
    return Problem(
        batch_size=2,
        seqlen_q=8192,
        seqlen_k=8192,
        num_heads_q=16,
        num_heads_kv=16,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=dtype,
        mask=Mask(pattern="history_candidate", history_len=history),
    )


def case(config, **changes):
    return Case(
        family="ranker", version="1", arch="sm_90", problem=problem(**changes), pass_name="forward", config=config
    )


def codes(each):
    return [rule.code for rule, _ in check(each, FAMILY.rules())]


@pytest.mark.parametrize("head_dim", own.HEAD_DIMS)
def test_what_the_rules_let_through_fits(head_dim):
    space = FAMILY.space(problem(head_dim), "forward", "sm_90")
    configs = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    passed = [each for each in configs if not codes(case(each, head_dim=head_dim))]
    assert FAMILY.default_config(problem(head_dim), "forward", "sm_90", None) in passed
    assert 10 < len(passed) < len(configs)
    for config in passed:
        assert all(each.headroom >= 0 for each in FAMILY.resources(case(config, head_dim=head_dim)))


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "stages", "expected"), [(192, 80, 2, 230400), (128, 128, 2, 230400), (64, 64, 4, 181248)]
)
def test_shared_memory_by_hand(tile_m, tile_n, stages, expected):
    """Q, two diagonals, and the rings, at 256 bytes a row; barriers of 8 bytes; whole KiB."""
    config = {"tile_m": tile_m, "tile_n": tile_n, "stages": stages, "turns": True, "persistent": True}
    assert own.smem_bytes(128, config) == expected


def test_masks_of_ranges_have_no_keys_on_the_diagonal():
    """Two buffers of rows instead of three, so that wider tiles fit."""
    config = own.default_config(128) | {"tile_m": 128, "tile_n": 160}
    assert own.smem_bytes(128, config, ranges=True) == 230400
    window = Mask(pattern="sliding_window", window=1024)
    wide = case(config)
    assert codes(wide) == ["RANKER-007"]
    assert not codes(replace(wide, problem=wide.problem.model_copy(update={"mask": window})))


@pytest.mark.parametrize("head_dim", own.HEAD_DIMS)
@pytest.mark.parametrize("ranges", [False, True])
def test_the_default_fits(head_dim, ranges):
    config = own.default_config(head_dim, ranges=ranges)
    assert own.smem_bytes(head_dim, config, ranges=ranges) <= own.SMEM_LIMIT
    assert own.fragment_registers(head_dim, config) <= own.register_limit(config)


def test_the_defaults_that_were_measured_stand():
    tiles = {dim: tuple(own.default_config(dim)[name] for name in ("tile_m", "tile_n", "stages")) for dim in (64, 128)}
    assert tiles == {64: (192, 128, 3), 128: (192, 80, 2)}


def test_a_persistent_grid_is_the_device():
    config = own.default_config(128)
    assert FAMILY.grid(case(config)) == 132
    assert FAMILY.grid(case({**config, "persistent": False})) == 43 * 32


def test_a_cut_last_round_costs_a_part():
    config = own.default_config(128)
    assert own.deal(43 * 32, 132, config | {"balanced": True}) == (1320, 2)
    assert FAMILY.predicted_cost(case(config | {"balanced": True})) < FAMILY.predicted_cost(case(config))


def test_more_history_costs_more():
    config = own.default_config(128)
    costs = [FAMILY.predicted_cost(case(config, history=history)) for history in (0, 2048, 6144)]
    assert costs == sorted(costs)
