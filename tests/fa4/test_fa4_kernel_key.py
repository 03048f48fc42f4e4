"""Problems that the family calls one kernel are one to flash-attn-4: its own key, noted where it looks for a kernel."""

import pytest
from fa4_cases import MASKS, make_case, make_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Candidate, Task
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.spec import FAMILY

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)

SHAPES = st.tuples(
    st.sampled_from((1, 64, 128, 129, 256, 300, 500, 1000, 1024)),  # tokens
    st.sampled_from((1, 2, 3)),  # batch
    st.sampled_from((1, 2, 4)),  # key heads
)
TILES = {"sm_90": (64, 64), "sm_100": (128, 128)}
UNBOUND = [name for name in MASKS if MASKS[name].pattern in {"dense", "causal", "sliding_window", "prefix_lm"}]


class Noted(Exception):
    """The key has been seen."""


class Notebook:
    key = None

    def __contains__(self, key):
        self.key = key
        raise Noted


class Full:
    """A cache that has every kernel."""

    def __contains__(self, key):
        return True


@pytest.fixture(scope="module")
def interface(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return launch.interface()


def upstream_key(interface, pass_name, arch, problem, tile, **more):
    """What flash-attn-4 would look for; the reason where it refuses."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = {**FAMILY.default_config(problem, pass_name, arch, None), "tile_m": tile[0], "tile_n": tile[1], **more}
    block = FAMILY.sparse_block(problem, pass_name, config)
    if block and (pass_name, arch) == ("forward", "sm_100"):
        block = (2 * tile[0], tile[1]) if tiles.q_stage(problem, arch) == 2 else block
    task = Task(family="fa4", version=None, arch=arch, pass_name=pass_name, problem=problem)
    notebook = Notebook()
    with pytest.MonkeyPatch.context() as patch:
        entry = interface._flash_attn_fwd if pass_name == "forward" else interface._flash_attn_bwd
        patch.setattr(entry, "compile_cache", notebook)
        patch.setattr(interface._bwd_preprocess, "compile_cache", Full())
        patch.setattr(interface, "_get_device_arch", lambda: int(arch.removeprefix("sm_")))
        with FakeTensorMode(), pytest.raises(launch.CompileError) as refusal:
            launch.record(task, Candidate(config=config, sparse_block=block), launch.fake_inputs(task))
    return notebook.key or str(refusal.value)


@pytest.mark.parametrize(("pass_name", "arch"), [(name, arch) for name in FAMILY.passes for arch in TILES])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(SHAPES, min_size=4, max_size=6, unique=True),
    group=st.sampled_from((1, 4)),
    more_keys=st.sampled_from((0, 128)),
    name=st.sampled_from(UNBOUND),
)
def test_equal_for_us_is_equal_for_upstream(interface, pass_name, arch, shapes, group, more_keys, name):  # noqa: PLR0917
    theirs = {}
    for seqlen, batch, heads in shapes:
        problem = make_problem(
            seqlen, seqlen + more_keys, heads=heads * group, heads_kv=heads, batch_size=batch, mask=MASKS[name]
        )
        tile_m, tile_n = TILES[arch]
        ours = tiles.kernel_key(problem, {"tile_m": tile_m, "tile_n": tile_n}, packs=pass_name == "forward")
        found = upstream_key(interface, pass_name, arch, problem, TILES[arch])
        assert theirs.setdefault(ours, found) == found


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(SHAPES, min_size=4, max_size=6, unique=True),
    group=st.sampled_from((1, 4)),
    name=st.sampled_from(("causal", "window")),
    more=st.sampled_from(({"mask_form": "native"}, {"mask_form": "native", "pack_gqa": False}, {"subtile_factor": 2})),
)
def test_other_forms_are_not_confused_either(interface, shapes, group, name, more):
    theirs = {}
    for seqlen, batch, heads in shapes:
        problem = make_problem(seqlen, heads=heads * group, heads_kv=heads, batch_size=batch, mask=MASKS[name])
        case = make_case(problem, tile_m=64, tile_n=64, **more)
        found = upstream_key(interface, "forward", "sm_90", problem, TILES["sm_90"], **more)
        assert isinstance(found, tuple), found
        assert theirs.setdefault(FAMILY.kernel_key(case), found) == found


@pytest.mark.parametrize("name", [name for name in MASKS if name != "dense"])
def test_tensors_of_the_mask_are_laid_out_as_those_it_was_compiled_with(name):
    """Else a kernel that was compiled ahead is not found, and the device waits while it is compiled again."""
    from flash_attn.cute.cute_dsl_utils import get_broadcast_dims
    from torch._subclasses.fake_tensor import FakeTensorMode

    problem = make_problem(500, batch_size=1, heads=1, mask=MASKS[name])
    case = make_case(problem, tile_m=64, tile_n=64)
    task = Task(family="fa4", version=None, arch="sm_90", pass_name="forward", problem=problem)
    candidate = Candidate(config=case.config, sparse_block=(64, 64))

    def layouts():
        found = launch.arguments.mask_arguments(task, candidate, torch.device("cpu"))
        lists, tables = found["block_sparse_tensors"], found["aux_tensors"] or ()
        tensors = [each for each in (*lists, *tables) if isinstance(each, torch.Tensor)]
        return [(each.shape, each.stride(), get_broadcast_dims(each)) for each in tensors]

    real = layouts()
    with FakeTensorMode():
        assert layouts() == real
