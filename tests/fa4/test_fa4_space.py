"""Config models, space, resources and predicted cost."""

import itertools
import math

import numpy as np
import pytest
from fa4_cases import errors, make_case, make_problem
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from attnctl.errors import UsageError
from attnctl.tune.space import build
from attnctl_kernels import masks
from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4.mask_form import native_arguments
from attnctl_kernels.fa4.spec import FAMILY

RANKER = Mask(pattern="history_candidate", history_len=6144)


def window_of(length):
    return Mask(pattern="sliding_window", window=length)


WINDOW = window_of(1024)


def candidates(problem):
    space = FAMILY.space(problem, "forward", "sm_90")
    for tile_m in space["tile_m"]:
        for tile_n in space["tile_n"]:
            for rs in space["mma_pv_is_rs"]:
                for overlap in space["intra_wg_overlap"]:
                    yield {"tile_m": tile_m, "tile_n": tile_n, "mma_pv_is_rs": rs, "intra_wg_overlap": overlap}


def case_of(problem, config):
    return make_case(problem, block=FAMILY.sparse_block(problem, "forward", config), **config)


def test_forward_space_on_hopper_has_108_candidates():
    problem = make_problem(8192, mask=RANKER)
    assert math.prod(map(len, FAMILY.space(problem, "forward", "sm_90").values())) == 108
    assert FAMILY.space(problem, "forward", "sm_100") == {}
    assert FAMILY.space(problem, "backward", "sm_100") == {}


@pytest.mark.parametrize(("head_dim", "runnable"), [(64, 108), (128, 90), (256, 16)])
def test_rules_leave_what_can_run(head_dim, runnable):
    """As on an H200: 18 refused launches at head_dim 128; 56 and 36 that do not compile at head_dim 256."""
    problem = make_problem(8192, head_dim=head_dim, mask=Mask(pattern="sliding_window", window=2048))
    kept = [each for each in candidates(problem) if not errors(case_of(problem, each))]
    assert len(kept) == runnable


def test_backward_space_holds_the_kernels_own_choice():
    for head_dim, heads_kv in itertools.product((64, 96, 128, 192, 256), (2, 4)):
        problem = make_problem(8192, heads_kv=heads_kv, head_dim=head_dim, mask=RANKER)
        space = FAMILY.space(problem, "backward", "sm_90")
        default = FAMILY.default_config(problem, "backward", "sm_90", None)
        assert default.keys() == space.keys()
        assert [name for name, value in default.items() if value not in space[name]] == []
        assert not errors(make_case(problem, "backward"))


def test_upstreams_backward_tiles_come_first():
    """Measured on an H200: the kernel's own choice was the fastest, or within 2 % of it."""
    for head_dim, mask in ((128, RANKER), (64, Mask(pattern="sliding_window", window=1024))):
        problem = make_problem(8192, head_dim=head_dim, heads=16, batch_size=2, mask=mask)
        case = make_case(problem, "backward")
        search = {"backward": {"subtile_factor": (1,), "tile_n": (64, 128), "dQ_single_wg": (False,)}}
        space = build(case, search=search)
        costs = [space.predicted[each.key] for each in space.candidates]
        assert 100 < len(costs) < 600
        assert sum(cost < space.predicted[space.default.key] for cost in costs) <= 3
        assert max(costs) > 1.5 * min(costs)


def test_config_models_are_strict():
    forward, backward = FAMILY.config_model("forward"), FAMILY.config_model("backward")
    assert forward().model_dump(exclude_none=True) == {}
    assert backward(tile_m=64, tile_n=128, subtile_factor=2).subtile_factor == 2
    for bad in ({"tile_m": "128"}, {"tile_m": True}, {"tile_n": 128.0}, {"mma_pv_is_rs": 1}, {"tile_k": 64}):
        with pytest.raises(ValidationError):
            forward(**bad)


def test_sparse_block_is_the_tile():
    problem = make_problem(head_dim=64)
    assert FAMILY.sparse_block(problem, "forward", {"tile_m": 192, "tile_n": 128}) == (192, 128)
    assert FAMILY.sparse_block(problem, "backward", {"tile_m": 64, "tile_n": 128, "subtile_factor": 2}) == (128, 128)
    assert FAMILY.sparse_block(make_problem(mask=Mask()), "forward", {"tile_m": 192, "tile_n": 128}) is None


def test_resources_of_the_usual_tile():
    """Worked by hand: Q 32768, K and V 131072, barriers 1024; S 64, O 64, P 32."""
    smem, registers = FAMILY.resources(make_case(make_problem()))
    assert (smem.used, smem.limit) == (164864, 232448)
    assert (registers.used, registers.limit) == (160, 216)
    assert FAMILY.resources(make_case(make_problem(), tile_m=96)) == ()


def test_resources_of_other_arches_and_of_the_backward_pass():
    """Worked by hand. sm_100: Q 65536, O 65536, six stages of 16384 for pairs, 2048; S and O twice 128 columns each."""

    def used(pass_name="forward", arch="sm_90", **shape):
        case = make_case(make_problem(mask=Mask(), **shape), pass_name, arch)
        return {each.name: each.used for each in FAMILY.resources(case)}

    assert used(arch="sm_100") == {"shared memory": 231424, "tensor memory": 512, "stages of K and V": 6}
    (_, _, stages) = FAMILY.resources(make_case(make_problem(), arch="sm_100"))
    assert (stages.used, stages.limit) == (3, 32)  # block lists are not walked in pairs
    assert used(arch="sm_80") == {"shared memory": 65536}
    assert used("backward") == {"shared memory": 232448, "accumulators per MMA thread": 208}
    assert used("backward", "sm_100") == {"tensor memory": 512}
    assert used("backward", "sm_120") == {"shared memory": 82432}


def test_good_tiles_come_first():
    """644 TFLOP/s against 357 on an H200; the model need not know numbers, only the order."""
    problem = make_problem(8192, heads=16, batch_size=2, mask=RANKER)
    costs = {
        (config["tile_m"], config["tile_n"]): FAMILY.predicted_cost(case_of(problem, config))
        for config in candidates(problem)
        if config["mma_pv_is_rs"] and config["intra_wg_overlap"]
    }
    ranked = sorted(costs, key=costs.__getitem__)
    assert ranked.index((128, 128)) < 5
    assert costs[128, 128] < costs[192, 128]
    assert costs[128, 128] < costs[64, 128]
    assert costs[128, 128] < costs[128, 64]


def test_cost_falls_with_density():
    costs = [
        FAMILY.predicted_cost(make_case(make_problem(8192, mask=Mask(pattern="sliding_window", window=window))))
        for window in (8192, 2048, 256)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 4


@pytest.mark.parametrize("switch", [{"softcap": 30.0}, {"num_splits": 2}, {"causal": True}, {"page_size": 128}])
def test_switches_that_are_not_passed_are_not_ignored(switch):
    case = make_case(make_problem(mask=Mask()), **switch)
    assert f"{next(iter(switch))} is" in FAMILY.cannot_run(case)
    assert FAMILY.cannot_run(make_case(make_problem(), tile_m=128, tile_n=128)) is None


def test_grouped_heads_may_be_searched_packed_and_apart():
    case = make_case(make_problem(8192, heads=16, heads_kv=4))
    space = build(case, search={"forward": {"tile_m": (128,), "tile_n": (128,), "pack_gqa": (True, False)}})
    assert {each.config.get("pack_gqa") for each in space.candidates} == {None, True, False}
    grids = {each.config.get("pack_gqa"): FAMILY.grid(case_of(case.problem, each.config)) for each in space.candidates}
    assert grids == {None: 1024, True: 1024, False: 1024}
    short = make_problem(100, heads=16, heads_kv=4)
    assert FAMILY.grid(make_case(short, pack_gqa=False)) == 16
    assert FAMILY.grid(make_case(short)) == 4 * 4  # 400 rows are four tiles of 128


def test_windows_and_causality_are_searched_in_both_forms():
    """A mask as blocks is the candidate that recorded sweeps hold: without a word about its form."""
    for mask in (WINDOW, Mask(pattern="causal")):
        space = build(make_case(make_problem(8192, mask=mask)))
        forms = {each.config.get("mask_form"): each for each in space.candidates}
        assert forms.keys() == {None, "native"}
        assert forms["native"].sparse_block is None
        assert space.size == 2 * 108
        native = case_of(space.case.problem, {**forms["native"].config, "tile_m": 128})
        assert FAMILY.grid(native) == 4 * 8192 // 128
    assert "mask_form" not in FAMILY.space(make_problem(8192, mask=RANKER), "forward", "sm_90")


def test_what_a_config_says_anyway_is_no_other_candidate():
    case = make_case(make_problem(8192, mask=WINDOW))
    said = build(case, search={"forward": {"mask_form": ("blocks",), "subtile_factor": (1,)}})
    assert {each.key for each in said.candidates} == {
        each.key for each in build(case).candidates if "mask_form" not in each.config
    }
    own = make_case(make_problem(8192, mask=WINDOW), mask_form="blocks", subtile_factor=1)
    assert build(own).incumbent == said.default


def test_query_blocks_of_several_tiles_are_searched_where_a_profile_asks():
    case = make_case(make_problem(8192, mask=RANKER))
    space = build(case, search={"forward": {"subtile_factor": (1, 2, 4)}})
    assert space.size == 3 * 108
    for each in space.candidates:
        factor = each.config.get("subtile_factor", 1)
        assert each.sparse_block == (each.config["tile_m"] * factor, each.config["tile_n"])
    fixed = build(case, sparse_block=(256, 128), search={"forward": {"subtile_factor": (2, 4)}})
    tiles = {(each.config["tile_m"], each.config.get("subtile_factor")) for each in fixed.candidates}
    assert tiles == {(128, 2), (64, 4), (128, None)}  # the last is the kernel's own choice, fitted to the block


def test_coarser_blocks_are_predicted_to_take_longer():
    problem = make_problem(8192, mask=Mask(pattern="sliding_window", window=1000))
    costs = [FAMILY.predicted_cost(make_case(problem, subtile_factor=factor)) for factor in (1, 2, 4)]
    assert costs == sorted(costs)
    assert costs[-1] > costs[0]


def test_native_form_has_no_blocks():
    case = make_case(make_problem(8192, mask=WINDOW))
    space = build(case, sparse_block=(128, 128))
    assert not any("mask_form" in each.config for each in space.candidates)
    assert sum(drop.rule.code == "FA4-S024" for drop in space.drops) == 8  # at the tiles that the block allows


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.one_of(st.just(Mask(pattern="causal")), st.integers(1, 70).map(window_of)),
)
def test_native_arguments_say_the_mask(queries, keys, mask):
    """flash-attn-4's own definition: ``seqlen_k - seqlen_q`` is added to a row, and both bounds are inclusive."""
    arguments = native_arguments(make_problem(queries, keys, mask=mask))
    distance = np.arange(keys) - (np.arange(queries)[:, None] + keys - queries)
    seen = distance <= (0 if arguments.get("causal") else arguments["window_size_right"])
    if "window_size_left" in arguments:
        seen &= distance >= -arguments["window_size_left"]
    np.testing.assert_array_equal(seen, masks.visible(mask, *np.ogrid[:queries, :keys], queries, keys))


def test_ragged_batches_are_not_ignored():
    case = make_case(make_problem(varlen=("cu_seqlens_q",)))
    assert "cu_seqlens_q" in FAMILY.cannot_run(case)


def test_a_sweep_over_a_switch_is_refused():
    case = make_case(make_problem())
    with pytest.raises(UsageError, match="num_splits is 1, which attnctl does not pass"):
        build(case, search={"forward": {"num_splits": (1, 2)}})
