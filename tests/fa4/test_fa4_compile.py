"""Real compilations without a GPU, in processes of their own: masks, refusals, and the cache on disk."""

import json
import re

import pytest
from fa4_cases import MASKS, errors, in_a_process, make_case, make_problem, make_work, objects

from attnctl_kernels.fa4 import resources
from attnctl_kernels.masks import PATTERNS

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
SMALL = {"tile_m": 64, "tile_n": 16}  # compiles fastest
COMPILED = ("dense", "causal", "window", "prefix", "history", "documents", "causal ragged documents", "blocks")


def problem_of(name, **more):
    """With grouped heads for one of them."""
    heads_kv = 1 if name == "documents" else None
    return make_problem(more.pop("seqlen", 500), heads_kv=heads_kv, head_dim=16, mask=MASKS[name], **more)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def compiled(cache):
    """Every pattern, compiled in one process."""
    work = [make_work(problem_of(name), **SMALL) for name in COMPILED]
    return dict(zip(COMPILED, in_a_process("compile", work, cache, **NO_GPU), strict=True))


FORMS = {  # name: mask, and what is added to the config
    "causal, native": ("causal", {"mask_form": "native"}),
    "window, native": ("window", {"mask_form": "native"}),
    "window, native, not packed": ("window", {"mask_form": "native", "pack_gqa": False}),
    "causal, two tiles per block": ("causal", {"subtile_factor": 2}),
    "documents, two tiles per block, not packed": ("documents", {"subtile_factor": 2, "pack_gqa": False}),
}


@pytest.fixture(scope="module")
def forms(cache):
    """Other ways to say a mask: heads are grouped where packing is a question."""
    work = []
    for name, config in FORMS.values():
        problem = make_problem(500, heads_kv=1 if "pack_gqa" in config else None, head_dim=16, mask=MASKS[name])
        assert not errors(make_case(problem, **SMALL, **config))
        work.append(make_work(problem, **SMALL, **config))
    return dict(zip(FORMS, in_a_process("compile", work, cache, **NO_GPU), strict=True))


@pytest.mark.parametrize("name", FORMS)
def test_form_compiles_to_a_kernel_of_its_own(forms, compiled, name):
    assert forms[name]["error"] is None
    assert forms[name]["binary"].endswith("-None" if "native" in name else "-(128, 16)")
    assert forms[name]["binary"] not in {each["binary"] for each in compiled.values()}
    assert len({each["binary"] for each in forms.values()}) == len(forms)


@pytest.mark.parametrize(
    ("head_dim", "head_dim_v", "packed"), [(96, 96, False), (128, 128, True), (192, 128, False), (256, 256, True)]
)
def test_head_dim_compiles_for_grouped_heads(cache, head_dim, head_dim_v, packed):
    shape = {"heads": 8, "heads_kv": 2, "head_dim": head_dim, "head_dim_v": head_dim_v, "mask": MASKS["documents"]}
    problem, config = make_problem(500, **shape), {**SMALL, "pack_gqa": packed}
    assert not errors(make_case(problem, **config))
    (result,) = in_a_process("compile", [make_work(problem, **config)], cache, **NO_GPU)
    assert result["error"] is None
    assert result["resources"]["smem_bytes"] == resources.smem_bytes(problem, {**SMALL, "mma_pv_is_rs": True})


def test_every_pattern_is_compiled():
    assert {MASKS[name].pattern for name in COMPILED} == set(PATTERNS)


@pytest.mark.parametrize("name", COMPILED)
def test_mask_compiles(compiled, name):
    result = compiled[name]
    assert result["error"] is None
    assert result["resources"]["registers"] > 100
    assert result["resources"]["local_bytes"] == 0
    assert re.match("[0-9a-f]{64}-", result["binary"])


def test_the_launch_asks_for_the_shared_memory_that_is_predicted(compiled):
    predicted = resources.smem_bytes(problem_of("dense"), {**SMALL, "mma_pv_is_rs": True})
    assert {result["resources"]["smem_bytes"] for result in compiled.values()} == {predicted}


def test_masks_are_different_kernels(compiled):
    assert len({result["binary"] for result in compiled.values()}) == len(compiled)


def test_second_process_finds_the_kernel_on_disk(compiled, cache):
    """Also for other lengths and heads: the kernel does not depend on them."""
    before = objects(cache)
    ragged, history = "causal ragged documents", problem_of("history", seqlen=700, heads=8)
    again = in_a_process(
        "compile", [make_work(problem_of(ragged), **SMALL), make_work(history, **SMALL)], cache, **NO_GPU
    )
    assert again == [compiled[ragged], compiled["history"]]
    assert objects(cache) == before


REFUSED = {
    "FA4-F005": ({"head_dim": 64}, {"tile_m": 96, "tile_n": 64}, "failed to partition"),
    "FA4-F006": ({}, {"tile_m": 64, "tile_n": 272}, "expects the N-mode to satisfy 8 <= N <= 256"),
    "FA4-F023": ({"head_dim_v": 256}, {"tile_m": 192, "tile_n": 16}, "Insufficient registers (128)"),
}


@pytest.fixture(scope="module")
def refusals(cache):
    work = [make_work(make_problem(500, **{"head_dim": 16, **more}), **tile) for more, tile, _ in REFUSED.values()]
    return dict(zip(REFUSED, in_a_process("compile", work, cache, **NO_GPU), strict=True))


@pytest.mark.parametrize("code", REFUSED)
def test_what_the_rules_refuse_does_not_compile(refusals, code):
    more, tile, message = REFUSED[code]
    assert errors(make_case(make_problem(500, **{"head_dim": 16, **more}), **tile)) == {code}
    assert message in refusals[code]["error"]
    assert "\n" not in refusals[code]["error"]


BLACKWELL = [  # head dimensions, tile, what the rules say, what the compiler says
    ((128, 128), (128, 128), set(), None),
    ((128, 128), (128, 64), set(), None),
    ((128, 128), (64, 128), {"FA4-F010"}, "IR verification failed"),
    ((128, 128), (192, 128), {"FA4-F010"}, "expects the M-mode to be 128 or 256"),
    ((128, 128), (128, 144), {"FA4-F011"}, "self.tmem_total <= self.tmem_alloc_cols"),
    ((128, 128), (128, 72), {"FA4-F002"}, "expects the N-mode to satisfy 16 <= N <= 256"),
    ((192, 192), (128, 128), {"FA4-E002"}, "is not supported on SM100/SM110"),
]


@pytest.fixture(scope="module")
def blackwell(cache):
    work = []
    for head_dims, (tile_m, tile_n), _, _ in BLACKWELL:
        problem = make_problem(500, head_dim=head_dims[0], head_dim_v=head_dims[1], mask=MASKS["dense"])
        task, candidate = make_work(problem)
        candidate = candidate.model_copy(update={"config": {"tile_m": tile_m, "tile_n": tile_n}})
        work.append((task.model_copy(update={"arch": "sm_100"}), candidate))
    return in_a_process("compile", work, cache, ATTNCTL_TARGET_ARCH="sm_100", **NO_GPU)


@pytest.mark.parametrize("row", range(len(BLACKWELL)), ids=[f"{dims[0]} {tile}" for dims, tile, _, _ in BLACKWELL])
def test_blackwell_compiles_what_the_rules_let_through_and_nothing_else(blackwell, row):
    head_dims, (tile_m, tile_n), codes, message = BLACKWELL[row]
    problem = make_problem(500, head_dim=head_dims[0], head_dim_v=head_dims[1], mask=MASKS["dense"])
    assert errors(make_case(problem, arch="sm_100", tile_m=tile_m, tile_n=tile_n)) == codes
    error = blackwell[row]["error"]
    assert message in error if message else error is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_other_arches_are_not_available(arch):
    assert launch.LAUNCHER.available(arch) == f"attnctl runs fa4 on sm_90 only, not on {arch}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    assert launch.LAUNCHER.available("sm_90") == "no CUDA device is visible"


def test_versions_are_those_installed():
    versions = launch.LAUNCHER.versions()
    assert versions["flash-attn-4"] == "4.0.0b36"
    assert re.fullmatch("[0-9a-f]{16}", versions["flash-attn-4-sources"])
    assert set(versions) == {"flash-attn-4", "flash-attn-4-sources", "nvidia-cutlass-dsl", "quack-kernels"}
    json.dumps(versions)
