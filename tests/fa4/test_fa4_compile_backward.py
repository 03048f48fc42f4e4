"""Real compilations of the backward pass without a GPU: what the rules let through, and what they refuse."""

import threading

import pytest
from fa4_cases import MASKS, errors, in_a_process, make_backward_work, make_case, make_problem, objects

from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.protocol import Hello
from attnctl_kernels.contract import Mask, Outcome
from attnctl_kernels.fa4 import backward

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
SMALL = {  # compiles fastest
    "tile_m": 64,
    "tile_n": 64,
    "SdP_swapAB": False,
    "AtomLayoutNdKV": 1,
    "AtomLayoutMdQ": 1,
    "num_stages_PdS": 1,
}
PLAIN = make_problem(500, head_dim=32, mask=Mask())
VALID = {
    "dense": (PLAIN, SMALL),
    "two stages of dS": (PLAIN, {**SMALL, "num_stages_PdS": 2}),
    "causal ragged documents of grouped heads": (
        make_problem(500, head_dim=32, heads_kv=2, mask=MASKS["causal ragged documents"]),
        {**SMALL, "subtile_factor": 2},
    ),
}
REFUSED = {
    "dQ has no whole instructions": (
        "FA4-B026",
        make_problem(500, head_dim=64, mask=Mask()),
        {**SMALL, "tile_m": 80, "tile_n": 128, "SdP_swapAB": True},
        "failed to partition",
    ),
    "rows are not copied in whole steps": ("FA4-B031", PLAIN, {**SMALL, "tile_m": 80}, "flash_bwd_preprocess.py"),
    "three stages of dO": (
        "FA4-B014",
        PLAIN,
        {**SMALL, "num_stages_dO": 3},
        "assert self.dO_stage in [1, self.Q_stage]",
    ),
    "statistics of 48 rows": (
        "FA4-B029",
        make_problem(500, head_dim=64, mask=Mask()),
        {**SMALL, "tile_m": 96, "SdP_swapAB": True, "AtomLayoutMSdP": 2, "dQ_swapAB": True, "AtomLayoutMdQ": 2},
        "unable to partition",
    ),
    "unequal head dimensions in groups": (
        "FA4-B013",
        make_problem(500, head_dim=32, head_dim_v=64, heads_kv=2, mask=Mask()),
        SMALL,
        "GQA backward requires head_dim == head_dim_v",
    ),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compiled(cache):
    work = [make_backward_work(problem, **config) for problem, config in VALID.values()]
    return dict(zip(VALID, in_a_process("compile", work, cache, **NO_GPU), strict=True))


@pytest.mark.parametrize("name", VALID)
def test_what_the_rules_let_through_compiles(compiled, name):
    problem, config = VALID[name]
    case = make_case(problem, "backward", **config)
    assert not errors(case)
    assert compiled[name]["error"] is None
    predicted = backward.sm90_smem_bytes(problem, backward.sm90_backward(case))
    assert compiled[name]["resources"]["smem_bytes"] == predicted


def test_stages_of_ds_are_another_kernel(compiled):
    """flash-attn-4's own key leaves them out."""
    assert compiled["dense"]["binary"] != compiled["two stages of dS"]["binary"]


def test_second_process_finds_the_kernels_on_disk(compiled, cache):
    before = objects(cache)
    names = ("dense", "two stages of dS")
    work = [make_backward_work(VALID[name][0].model_copy(update={"seqlen_q": 700}), **VALID[name][1]) for name in names]
    assert in_a_process("compile", work, cache, **NO_GPU) == [compiled[name] for name in names]
    assert objects(cache) == before


@pytest.fixture(scope="module")
def refusals(cache):
    work = [make_backward_work(problem, **config) for _, problem, config, _ in REFUSED.values()]
    return dict(zip(REFUSED, in_a_process("compile", work, cache, **NO_GPU), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_rules_refuse_does_not_compile(refusals, name):
    code, problem, config, message = REFUSED[name]
    assert code in errors(make_case(problem, "backward", **config))
    assert message in refusals[name]["error"]
    assert "\n" not in refusals[name]["error"]


def test_blackwell_compiles_with_its_own_tiles(cache):
    problem = make_problem(512, head_dim=64, mask=MASKS["history"])
    task, candidate = make_backward_work(problem)
    case = make_case(problem, "backward", "sm_100")
    candidate = candidate.model_copy(update={"config": case.config, "sparse_block": case.sparse_block})
    work = [(task.model_copy(update={"arch": "sm_100"}), candidate)]
    (result,) = in_a_process("compile", work, cache, ATTNCTL_TARGET_ARCH="sm_100", **NO_GPU)
    assert result["error"] is None
    assert result["resources"]["registers"] > 100


def test_a_compiler_that_aborts_costs_one_candidate(tmp_path):
    """FA4-B028 foresees it."""
    aborts = {**SMALL, "tile_m": 80, "SdP_swapAB": True, "AtomLayoutMSdP": 2, "dQ_swapAB": True, "AtomLayoutMdQ": 2}
    problem = make_problem(500, head_dim=128, mask=Mask())
    task, candidate = make_backward_work(problem, **aborts)
    deadlines = Deadlines(start=120, compile=200)
    with CompilePool(Hello(family="fa4", arch="sm_90", device="none"), 1, deadlines, tmp_path) as pool:
        result = pool.submit(task, candidate).result()
    assert result.outcome is Outcome.WORKER_DIED
    assert "SIGABRT" in result.reason
    assert "FA4-B028" in errors(make_case(problem, "backward", **aborts))


class Entry:
    """A function with a cache of kernels, as upstream has them."""

    def __init__(self):
        self.compile_cache = {("key",): "kernel"}


def test_stand_ins_are_seen_by_one_thread_and_taken_away():
    from attnctl_kernels.fa4.launch.recording import answering, recording

    entry = Entry()
    entry.choose = lambda *_, **__: "its own"
    real_cache, real_choice, seen = entry.compile_cache, entry.choose, []

    def elsewhere():
        seen.extend([("key",) in entry.compile_cache, entry.compile_cache["key",], entry.choose(1, causal=True)])

    with (  # noqa: PT012 - what is left after a failure is the point
        pytest.raises(RuntimeError, match="tracing"),
        recording([entry], ("more",)) as recorders,
        answering(entry, "choose", "another"),
    ):
        assert entry.choose() == "another"
        assert ("key",) not in entry.compile_cache
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        entry.compile_cache["key",] = "fresh"
        entry.compile_cache["key",](1, 2)
        raise RuntimeError("tracing")
    assert seen == [True, "kernel", "its own"]
    assert entry.compile_cache is real_cache
    assert entry.choose is real_choice
    assert real_cache == {("key",): "kernel", ("key", "more"): "fresh"}
    (launched,) = recorders[0].launches
    assert (launched.arguments, launched.fresh) == ((1, 2), True)
