"""Default tiles and rules against flash-attn-4's own functions, on fake tensors."""

import itertools
from functools import partial

import pytest
from fa4_cases import CAUSAL, THOROUGH, errors, make_case, make_problem, make_work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4 import resources
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.spec import FAMILY

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)

HEAD_DIMS = (16, 64, 72, 96, 128, 136, 192, 256)
BLOCKS_Q = st.sampled_from((32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 640))
BLOCKS_KV = st.sampled_from((16, 24, 48, 64, 72, 80, 96, 112, 128, 144, 160, 192, 256, 384))
ARCHES = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "sm_120": 120}


class Reached(Exception):
    """All checks passed: the entry wants to compile."""


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        launch.interface()


@pytest.fixture
def upstream(entry):
    """The interface module, which stops where it would compile."""
    from flash_attn.cute import interface

    def stop(*args, **kwargs):
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface.cute, "compile", stop)
        patch.setattr(interface, "_bwd_preprocess", lambda *args, **kwargs: None)
        patch.setattr(interface._flash_attn_fwd, "compile_cache", {})
        patch.setattr(interface._flash_attn_bwd, "compile_cache", {})
        patch.setattr(interface, "_get_device_arch", lambda: 90)
        yield interface


def fake(*shape, dtype=None):
    return torch.empty(*shape, dtype=dtype or torch.bfloat16, device="cuda")


def block_tensors(rows, columns, size):
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    counts, indices = ((1, 1, rows), (1, 1, rows, columns))
    arrays = [fake(*shape, dtype=torch.int32) for shape in (counts, indices, counts, indices)]
    return BlockSparseTensorsTorch(*arrays, block_size=size)


def tiles_of(length, block):
    return -(-length // block)


def tensors_of(problem):
    b, hq, hk = problem.batch_size, problem.num_heads_q, problem.num_heads_kv
    dtype = getattr(torch, problem.dtype)
    return (
        fake(b, problem.seqlen_q, hq, problem.head_dim, dtype=dtype),
        fake(b, problem.seqlen_k, hk, problem.head_dim, dtype=dtype),
        fake(b, problem.seqlen_k, hk, problem.head_dim_v, dtype=dtype),
    )


def outcome(call):
    """What upstream's entry says to a call; None if it goes on to compile."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        try:
            call()
        except Reached:
            return None
        except (ValueError, AssertionError) as error:
            # The class for another arch than the process compiles for: all checks of the entry are behind it.
            return None if "Only SM" in str(error) else str(error) or repr(error)
    raise AssertionError("a kernel was found in an empty cache")


def refusal(upstream, case):
    def call():
        problem, block = case.problem, case.sparse_block
        explicit = {}
        if {"tile_m", "tile_n"} & case.given:
            explicit["tile_mn"] = (case.config["tile_m"], case.config["tile_n"])
        if block:
            rows, columns = tiles_of(problem.seqlen_q, block[0]), tiles_of(problem.seqlen_k, block[1])
            explicit |= {"block_sparse_tensors": block_tensors(rows, columns, block), "mask_mod": causal}
        upstream._flash_attn_fwd(*tensors_of(problem), _arch=ARCHES[case.arch], **explicit)

    return outcome(call)


def backward_refusal(upstream, case):
    def call():
        problem, block = case.problem, case.sparse_block
        out = fake(problem.batch_size, problem.seqlen_q, problem.num_heads_q, problem.head_dim_v)
        lse = fake(problem.batch_size, problem.num_heads_q, problem.seqlen_q, dtype=torch.float32)
        lists = block_tensors(tiles_of(problem.seqlen_k, block[1]), tiles_of(problem.seqlen_q, block[0]), block)
        tensors = (*tensors_of(problem), out, out, lse)
        upstream._flash_attn_bwd(*tensors, block_sparse_tensors=lists, mask_mod=causal)

    return outcome(call)


def causal(_batch, _head, q, k, *_):
    return k <= q


@pytest.mark.parametrize("arch", ARCHES)
def test_default_forward_tile_is_upstreams(upstream, arch):
    blocks = [None, *itertools.product((64, 96, 128, 160, 192, 256, 384), (48, 64, 72, 80, 96, 112, 128, 144, 256))]
    for head_dim, head_dim_v, block in itertools.product(HEAD_DIMS, (64, 128, 256), blocks):
        problem = make_problem(head_dim=head_dim, head_dim_v=head_dim_v, mask=CAUSAL if block else Mask())
        config = upstream._get_fwd_config(
            arch=ARCHES[arch],
            head_dim=head_dim,
            head_dim_v=head_dim_v,
            max_seqlen_q=problem.seqlen_q,
            max_seqlen_k=problem.seqlen_k,
            num_head_kv=problem.num_heads_kv,
            qhead_per_kvhead=1,
            pack_gqa=False,
            batch_size=1,
            causal=False,
            local=False,
            window_size_left=None,
            window_size_right=None,
            num_splits=1,
            device=torch.device("cuda", 0),
            block_sparse_tensors=upstream.BlockSparseTensorsTorch(None, None, block_size=block) if block else None,
        )
        ours = FAMILY.default_config(problem, "forward", arch, block)
        assert (ours["tile_m"], ours["tile_n"]) == (config.m_block_size, config.n_block_size)
        if arch == "sm_90":
            assert (ours["mma_pv_is_rs"], ours["intra_wg_overlap"]) == (config.mma_pv_is_rs, config.intra_wg_overlap)
        assert Call(make_case(problem, arch=arch)).q_stage == config.q_stage


def test_default_backward_tile_is_upstreams(upstream):
    blocks = (64, 80, 96, 128, 160, 192, 256, 320)
    for head_dim, head_dim_v, block_q in itertools.product(HEAD_DIMS, (64, 128, 256), (None, *blocks)):
        problem = make_problem(head_dim=head_dim, head_dim_v=head_dim_v, mask=CAUSAL if block_q else Mask())
        theirs = upstream._tile_size_bwd_sm90(head_dim, head_dim_v, False, False, sparse_block_size_q=block_q)
        ours = FAMILY.default_config(problem, "backward", "sm_90", (block_q, 128) if block_q else None)
        assert (ours["tile_m"], ours["tile_n"]) == (theirs.m_block_size, theirs.n_block_size)


LATER = {"FA4-F007", "FA4-F023"}  # what the compiler and the launch find, not the entry


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150 * THOROUGH)
@given(
    st.tuples(st.sampled_from(("sm_90", "sm_100")), st.sampled_from(HEAD_DIMS)),
    st.tuples(st.sampled_from((100, 128, 1000, 1024)), st.sampled_from((1, 2))),
    st.tuples(BLOCKS_Q, BLOCKS_KV),
    st.none() | st.tuples(st.sampled_from((64, 128, 192)), st.sampled_from((64, 80, 128, 176))),
)
def test_sparse_rules_refuse_what_upstream_refuses(upstream, target, shape, block, tile):
    arch, head_dim = target
    seqlen, group = shape
    problem = make_problem(seqlen, heads=4, heads_kv=4 // group, head_dim=head_dim)
    config = {"tile_m": tile[0], "tile_n": tile[1]} if tile and arch == "sm_90" else {}
    case = make_case(problem, arch=arch, block=block, **config)
    refused = refusal(upstream, case)
    assert bool(errors(case) - LATER) == (refused is not None), refused


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80 * THOROUGH)
@given(st.sampled_from((16, 64, 96, 128, 192, 256)), st.sampled_from((64, 128)), BLOCKS_Q, BLOCKS_KV)
def test_backward_rules_refuse_what_upstream_refuses(upstream, dim, dim_v, block_q, block_kv):
    problem = make_problem(head_dim=dim, head_dim_v=min(dim, dim_v))
    case = make_case(problem, "backward", block=(block_q, block_kv))
    refused = backward_refusal(upstream, case)
    assert bool(errors(case) & {"FA4-B003", "FA4-B004"}) == (refused is not None), refused


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60 * THOROUGH)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(1, 200))
def test_subtiles_are_what_upstream_counts(upstream, factor, multiple, tile, kv_blocks):
    """FA4-B002 against the function that the message comes from."""
    block_q, tile_m = multiple * 64, tile * 64

    def call():
        upstream.normalize_block_sparse_config_bwd(
            block_tensors(kv_blocks, 1, (block_q, 128)),
            batch_size=1,
            num_head=1,
            seqlen_q=block_q,
            seqlen_k=kv_blocks * 128,
            block_size=(tile_m, 128),
            q_subtile_factor=factor,
        )
        raise Reached

    refused = outcome(call)
    assert refused is None or "for q_subtile_factor=" in refused
    case = make_case(
        make_problem(block_q, kv_blocks * 128),
        "backward",
        block=(block_q, 128),
        tile_m=tile_m,
        tile_n=128,
        subtile_factor=factor,
    )
    assert ("FA4-B002" in errors(case)) == (refused is not None)


def test_head_dims_are_upstreams(upstream):
    def call(dim, dim_v):
        upstream._validate_head_dims(dim, dim_v, 9, 8)
        raise Reached

    for dim, dim_v in itertools.product((4, 8, 12, 64, 100, 104, 128, 248, 256, 264, 512), repeat=2):
        case = make_case(make_problem(head_dim=dim, head_dim_v=dim_v, mask=Mask()))
        assert ("FA4-E001" in errors(case)) == (outcome(partial(call, dim, dim_v)) is not None)


def test_float32_is_refused(upstream):
    problem = make_problem(dtype="float32", mask=Mask())
    assert "FA4-E004" in errors(make_case(problem))
    assert "inputs must be float16" in refusal(upstream, make_case(problem))


CONFIG_PY_MESSAGES = (
    "Tile dimensions must be positive",
    "Tile dimensions must be multiples of 16",
    "SM90 tile_m must be",
    "does not expose SM90 MMA flags",
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200 * THOROUGH)
@given(st.sampled_from(tuple(ARCHES)), st.integers(-16, 400), st.integers(-16, 400), st.booleans(), st.booleans())
def test_no_tile_passes_that_config_py_refuses(arch, tile_m, tile_n, rs, overlap):
    """`validate_fwd_config` is called by nothing in the wheel; the rules are at least as strict."""
    from flash_attn.cute import config

    switches = {"mma_pv_is_rs": rs, "intra_wg_overlap": overlap}
    off = dict.fromkeys(
        ("use_clc_scheduler", "is_static_persistent", "use_tma_o", "use_s_ping_pong", "use_2cta_instrs"), False
    )
    forward = config.FwdConfig(
        device_capacity=ARCHES[arch] // 10,
        tile_m=tile_m,
        tile_n=tile_n,
        q_stage=1,
        num_splits=1,
        registers=None,
        **switches,
        **off,
    )
    inputs = config.FwdHeuristicInputs(ARCHES[arch], 132, "bfloat16", 128, 128, 4, 4, 1, 1024, 1024, 1024, 1024)
    case = make_case(make_problem(mask=Mask()), arch=arch, tile_m=tile_m, tile_n=tile_n, **switches)

    def call():
        config.validate_fwd_config(forward, inputs)
        raise Reached

    refused = outcome(call) or ""
    if any(part in refused for part in CONFIG_PY_MESSAGES):
        assert errors(case) & {"FA4-F002", "FA4-F005", "FA4-F006", "FA4-F009"}, refused


@pytest.mark.parametrize(
    ("head_dims", "tile", "rs"),
    [
        ((128, 128), (128, 128), True),
        ((128, 128), (64, 176), False),
        ((256, 256), (128, 80), True),
        ((72, 72), (192, 144), False),
        ((192, 128), (128, 112), True),
        ((64, 128), (192, 96), True),
    ],
)
def test_shared_memory_is_what_the_kernel_allocates(entry, monkeypatch, head_dims, tile, rs):
    """Traced up to the allocation, which is noted and goes no further."""
    from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90

    make_storage, sizes = FlashAttentionForwardSm90._get_shared_storage_cls, []

    def note(self):
        sizes.append(make_storage(self).size_in_bytes())
        raise Reached

    monkeypatch.setattr(FlashAttentionForwardSm90, "_get_shared_storage_cls", note)
    problem = make_problem(500, head_dim=head_dims[0], head_dim_v=head_dims[1], mask=Mask())
    task, candidate = make_work(problem, *tile, mma_pv_is_rs=rs)
    with pytest.raises(launch.CompileError, match="Reached"):
        launch.LAUNCHER.compile(task, candidate)
    assert sizes == [resources.smem_bytes(problem, candidate.config)]
