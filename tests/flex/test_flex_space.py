"""What `tune` tries, and how a profile's options come to be those of one pass. Pure Python."""

import pytest
from flex_runs import FAMILY, make_problem

from attnctl.profile.candidate import case_of, errors
from attnctl_kernels.contract import Candidate, Case, Mask

BOTH = {"num_warps": 8, "fwd_BLOCK_M": 64, "bwd_BLOCK_M1": 32, "bwd_num_warps": 4, "return_lse": True}


def case(pass_name="forward", arch="sm_90", *, problem=None, version="2.13", **written):
    problem = problem or make_problem(4096)
    config = {**FAMILY.default_config(problem, pass_name, arch, None), **written}
    block = FAMILY.sparse_block(problem, pass_name, config)
    return Case("flex", version, arch, problem, pass_name, config, block, passes=(pass_name,))


def test_a_prefixed_option_wins_and_the_other_pass_is_left_out():
    forward = FAMILY.of_pass({"BLOCK_M": 128, "BLOCK_N": 32, **BOTH}, "forward")
    assert forward == {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 8, "return_lse": True}
    backward = FAMILY.of_pass({"BLOCK_M1": 64, "num_stages": 2, **BOTH}, "backward")
    assert backward == {"BLOCK_M1": 32, "num_warps": 4, "num_stages": 2, "return_lse": True}


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_the_space_has_the_default_and_costs_tell_its_candidates_apart(pass_name):
    template = case(pass_name)
    space = FAMILY.space(template.problem, pass_name, "sm_90")
    default = FAMILY.default_config(template.problem, pass_name, "sm_90", None)
    assert all(default[name] in values for name, values in space.items() if name != "sparse_block")
    assert (128, 128) in space["sparse_block"]
    costs = set()
    for warps in space["num_warps"]:
        for stages in space["num_stages"]:
            candidate = Candidate(config={**default, "num_warps": warps, "num_stages": stages}, sparse_block=(128, 128))
            its_case = case_of(template, candidate)
            assert not errors(its_case)
            costs.add(FAMILY.predicted_cost(its_case))
            assert FAMILY.grid(its_case) > 0
    assert len(costs) > 3
    assert min(costs) > 0


def test_spaces_of_other_calls():
    dense = make_problem(4096, mask=Mask())
    assert "sparse_block" not in FAMILY.space(dense, "forward", "sm_90")
    assert "BLOCK_M" not in FAMILY.space(make_problem(16, 4096), "forward", "sm_90")  # decoding
    assert set(FAMILY.space(make_problem(512), "forward", None)) == {"sparse_block"}
    assert FAMILY.space(make_problem(20), "forward", None) == {"sparse_block": ((32, 64),)}


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ({"return_max_scores": True}, "config.return_max_scores is True"),
        ({"dynamic": True}, "config.dynamic is True"),
        ({"compiled": False}, "config.compiled is False"),
        ({"device": "mps"}, "config.device is mps"),
        ({"BACKEND": "FLASH"}, "is the kernel of family fa4"),
        ({"version": "2.5"}, "version is 2.5"),
        ({"arch": None, "BLOCK_M": 64}, "config.BLOCK_M is 64"),  # the C++ kernel has no tile
        ({"problem": make_problem(4096).model_copy(update={"batch_size_kv": 1})}, "problem.batch_size_kv is 1"),
    ],
)
def test_calls_that_attnctl_does_not_make_are_refused(written, part):
    assert part in FAMILY.cannot_run(case(**written))


def test_calls_that_it_makes_are_not():
    assert FAMILY.cannot_run(case(BLOCK_M=64, enable_gqa=True, device="cuda", compiled=True, USE_TMA=True)) is None
    assert FAMILY.cannot_run(case(arch=None, device="cpu")) is None
    assert FAMILY.cannot_compile(case()) is None
    assert FAMILY.cannot_compile(case(arch=None)) == "the C++ kernel is compiled on the machine that runs it"
    assert FAMILY.on_gpu("sm_90")
    assert not FAMILY.on_gpu(None)
