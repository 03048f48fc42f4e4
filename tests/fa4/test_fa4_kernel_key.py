"""Problems that the family calls one kernel are one to flash-attn-4: its own key, noted where it looks for a kernel."""

import pytest
from fa4_cases import MASKS, make_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Candidate
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


@pytest.fixture(scope="module")
def interface(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        launch.forward_entry()
    from flash_attn.cute import interface

    return interface


def upstream_key(interface, arch, problem, tile):
    """What flash-attn-4 would look for; the reason where it refuses."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = {"tile_m": tile[0], "tile_n": tile[1]}
    block = FAMILY.sparse_block(problem, "forward", config)
    if block and arch == "sm_100":
        block = (2 * tile[0], tile[1]) if tiles.q_stage(problem, arch) == 2 else block
    notebook = Notebook()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface._flash_attn_fwd, "compile_cache", notebook)
        patch.setattr(interface, "_get_device_arch", lambda: int(arch.removeprefix("sm_")))
        with FakeTensorMode(), pytest.raises(launch.CompileError) as refusal:
            launch._launch(problem, Candidate(config=config, sparse_block=block), launch._fake_inputs(problem))
    return notebook.key or str(refusal.value)


@pytest.mark.parametrize("arch", TILES)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(SHAPES, min_size=4, max_size=6, unique=True),
    group=st.sampled_from((1, 4)),
    more_keys=st.sampled_from((0, 128)),
    name=st.sampled_from(UNBOUND),
)
def test_equal_for_us_is_equal_for_upstream(interface, arch, shapes, group, more_keys, name):  # noqa: PLR0917
    theirs = {}
    for seqlen, batch, heads in shapes:
        problem = make_problem(
            seqlen, seqlen + more_keys, heads=heads * group, heads_kv=heads, batch_size=batch, mask=MASKS[name]
        )
        tile_m, tile_n = TILES[arch]
        ours = tiles.kernel_key(problem, {"tile_m": tile_m, "tile_n": tile_n})
        found = upstream_key(interface, arch, problem, TILES[arch])
        assert theirs.setdefault(ours, found) == found
