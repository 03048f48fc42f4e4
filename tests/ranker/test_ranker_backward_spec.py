"""The rules and the space of the backward pass agree: what the rules let through fits, and the default is among it."""

import itertools

import pytest

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.ranker import backward_config as own
from attnctl_kernels.ranker.config import HEAD_DIMS
from attnctl_kernels.ranker.spec import FAMILY
from attnctl_kernels.rule import check


def case(config, head_dim=128, history=6144, *, mask=None, seqlen_q=8192):
    problem = Problem(
        batch_size=2,
        seqlen_q=seqlen_q,
        seqlen_k=8192,
        num_heads_q=16,
        num_heads_kv=4,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype="bfloat16",
        mask=mask or Mask(pattern="history_candidate", history_len=history),
    )
    return Case(family="ranker", version="1", arch="sm_90", problem=problem, pass_name="backward", config=config)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_what_the_rules_let_through_fits(head_dim):
    problem = case({}, head_dim).problem
    space = FAMILY.space(problem, "backward", "sm_90")
    configs = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    passed = [each for each in configs if not list(check(case(each, head_dim), FAMILY.rules()))]
    assert FAMILY.default_config(problem, "backward", "sm_90", None) in passed
    # Above head_dim 128 shared memory has room for one.
    assert len(passed) == 1 if head_dim > 128 else 3 < len(passed) < len(configs)
    for config in passed:
        assert FAMILY.config_model("backward").model_validate(config)
        assert all(each.headroom >= 0 for each in FAMILY.resources(case(config, head_dim)))


@pytest.mark.parametrize(
    ("head_dim", "tile_m", "tile_n", "stages", "expected"),
    [
        (128, 64, 128, 2, 231424),
        (128, 64, 64, 3, 182272),
        (64, 128, 128, 2, 232448),
        (96, 64, 128, 2, 206848),
        (192, 64, 64, 2, 198656),
        (256, 64, 64, 2, 215040),
    ],
)
def test_shared_memory_by_hand(head_dim, tile_m, tile_n, stages, expected):
    """K, V, stages of Q and dO, with one less of dO at 256; two of dS and dQ; 8 bytes per row of a stage; barriers.

    Rounded up to whole KiB.
    """
    assert own.smem_bytes(head_dim, {"tile_m": tile_m, "tile_n": tile_n, "stages": stages}) == expected


def test_a_block_of_keys_serves_a_group_of_heads():
    config = own.default_config(128)
    assert FAMILY.grid(case(config, history=2048)) == 16 * 4 * 2


def test_masks_have_blocks_of_all_keys_and_cost_what_sees_them():
    config = own.default_config(128)
    patterns = {"sliding_window": {"window": 1024}, "causal": {}, "dense": {}}
    cases = [case(config, mask=Mask(pattern=name, **facts), seqlen_q=4096) for name, facts in patterns.items()]
    assert not [found for each in cases for found in check(each, FAMILY.rules())]
    assert [FAMILY.grid(each) for each in cases] == [64 * 4 * 2] * 3
    costs = [FAMILY.predicted_cost(each) for each in cases]
    assert costs == sorted(set(costs))
    assert FAMILY.kernel_key(cases[0]) == FAMILY.kernel_key(cases[2]) != FAMILY.kernel_key(case(config))


def test_more_history_costs_more():
    config = own.default_config(128)
    costs = [FAMILY.predicted_cost(case(config, history=history)) for history in (0, 2048, 6144)]
    assert costs == sorted(costs)
