"""Every pattern with every family that can be tuned: it runs, or a rule says why not.

``blocks`` really runs here. The others have a device to run on elsewhere: ``fa4`` and ``flex`` compile every mask of
``attention_problems.MASKS`` in tests of their own.
"""

import pytest
from attention_problems import MASKS, make_problem

from attnctl.profile.candidate import errors
from attnctl_kernels import masks, reference
from attnctl_kernels.contract import Candidate, Case, Inputs, Task
from attnctl_kernels.families import family_names, get_family

torch = pytest.importorskip("torch")

TUNABLE = [name for name in family_names() if get_family(name).tunable]
# The masks that a family's passes refuse, and the rules that do; all others run.
REFUSED = {
    ("pallas_mgpu", "forward"): ({"PAL-F012"}, set(MASKS) - {"dense", "causal"}),
    ("pallas_mgpu", "backward"): ({"PAL-F012", "PAL-B001"}, set(MASKS) - {"dense"}),
    ("ranker_fa3", "forward"): ({"PAL-F012", "PAL-F008"}, set(MASKS) - {"dense", "history"}),
    ("ranker_fa3", "backward"): ({"PAL-F012", "PAL-B001"}, set(MASKS) - {"dense", "history"}),
    ("ranker", "forward"): ({"RANKER-001"}, {"blocks"}),
    ("ranker", "backward"): ({"RANKER-001"}, {"blocks"}),
}
NEED_WHOLE_TILES = {"pallas_mgpu", "ranker_fa3"}  # 500 tokens are none, which other rules say
PALLAS_BLOCKS = {"block_q_dkv": 64, "block_kv_dkv": 64, "block_q_dq": 64, "block_kv_dq": 64}
MORE = dict.fromkeys(NEED_WHOLE_TILES, PALLAS_BLOCKS)


def case_of(family, pass_name, mask):
    """At the family's own config, on sm_90 where it knows that arch."""
    arch = "sm_90" if "sm_90" in family.arches or (family.name, pass_name) == ("flex", "backward") else None
    dtype = "float16" if family.name == "pallas_mgpu" else "bfloat16" if arch else "float32"
    problem = make_problem(500, heads=4, heads_kv=2, head_dim=64, dtype=dtype, mask=mask)
    config = {**family.default_config(problem, pass_name, arch, None), **MORE.get(family.name, {})}
    block = family.sparse_block(problem, pass_name, config)
    return Case(
        family=family.name,
        version=family.versions[-1],
        arch=arch,
        problem=problem,
        pass_name=pass_name,
        config=config,
        sparse_block=block,
        passes=(pass_name,),
        configs={pass_name: config},
        sparse_blocks={pass_name: block},
    )


def test_there_is_a_mask_of_every_pattern():
    assert {each.pattern for each in MASKS.values()} == set(masks.PATTERNS)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("family", TUNABLE)
def test_a_pattern_is_refused_by_name_or_not_at_all(family, name):
    for pass_name in get_family(family).passes:
        codes, refused = REFUSED.get((family, pass_name), (set(), set()))
        broken = {rule.code for rule, _ in errors(case_of(get_family(family), pass_name, MASKS[name]))}
        assert bool(broken & codes) == (name in refused), (pass_name, broken)
        if family not in NEED_WHOLE_TILES:
            assert broken <= codes


@pytest.mark.parametrize("name", MASKS)
def test_blocks_runs_every_pattern_in_both_passes(name):
    family = get_family("blocks")
    launcher = family.launcher()
    problem = case_of(family, "forward", MASKS[name]).problem
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 500, heads, 64) for heads in (4, 2, 2, 4)]
    q, k, v, dout = (torch.randn(shape, generator=generator) for shape in shapes)
    out, lse = reference.forward(q, k, v, problem.mask)
    expected = {"forward": (out, lse), "backward": reference.backward(q, k, v, dout, problem.mask)}
    inputs = Inputs(q, k, v, out=out.float(), lse=lse.float(), dout=dout)
    for pass_name, wanted in expected.items():
        case = case_of(family, pass_name, MASKS[name])
        task = Task(family="blocks", version=None, arch=None, pass_name=pass_name, problem=problem)
        call = launcher.bind(task, Candidate(config=dict(case.config), sparse_block=case.sparse_block), inputs)
        call.poison()
        call.run()
        for got, want in zip(call.outputs().values(), wanted, strict=True):
            torch.testing.assert_close(got, want.float(), atol=2e-5, rtol=2e-4)
