"""The backward kernel of sm_90 against its own table and allocation, and the rules about it."""

import itertools

import pytest
from fa4_cases import CAUSAL, codes, make_case, make_problem
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4 import backward
from attnctl_kernels.rule import Severity

pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")
if launch.missing_packages():
    pytest.skip(f"{launch.missing_packages()[0]} is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def interface():
    return launch.interface()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("block_q", [None, 64, 80, 128, 160, 256])
def test_choices_are_upstreams(interface, causal, block_q):
    if block_q and causal:
        pytest.skip("block lists come with a mask function, which is not causal")
    for head_dim, head_dim_v in itertools.product((16, 64, 72, 96, 128, 136, 192, 256), (64, 128, 192, 256)):
        theirs = interface._tile_size_bwd_sm90(head_dim, head_dim_v, causal, False, sparse_block_size_q=block_q)
        problem = make_problem(head_dim=head_dim, head_dim_v=head_dim_v, mask=CAUSAL if block_q else Mask())
        block = (block_q, 128) if block_q else None
        case = make_case(problem, "backward", block=block, **({"causal": True} if causal else {}))
        ours = backward.sm90_backward(case)
        assert interface.BwdConfig(*ours.in_order()) == theirs


@pytest.mark.parametrize(
    ("head_dims", "changes"),
    [
        ((128, 128), {}),
        ((64, 64), {}),
        ((96, 96), {}),
        ((192, 128), {}),
        ((256, 256), {}),
        ((72, 72), {"num_stages_PdS": 1}),
        ((128, 128), {"tile_m": 64, "num_stages_dO": 1, "SdP_swapAB": False}),
        ((64, 64), {"tile_m": 128, "tile_n": 64, "num_stages_Q": 1, "num_stages_dO": 1, "num_stages_PdS": 1}),
    ],
)
def test_shared_memory_is_what_the_kernel_allocates(interface, head_dims, changes):
    """The kernel's own layouts, without tracing the kernel."""
    import cutlass
    from cutlass import cute

    problem = make_problem(head_dim=head_dims[0], head_dim_v=head_dims[1], mask=Mask())
    case = make_case(problem, "backward", **changes)
    config = backward.sm90_backward(case)
    kernel = interface.FlashAttentionBackwardSm90(
        cutlass.BFloat16,
        *head_dims,
        tile_m=config.tile_m,
        tile_n=config.tile_n,
        Q_stage=config.num_stages_Q,
        dO_stage=config.num_stages_dO,
        PdS_stage=config.num_stages_PdS,
        SdP_swapAB=config.SdP_swapAB,
        dKV_swapAB=config.dKV_swapAB,
        dQ_swapAB=config.dQ_swapAB,
        AtomLayoutMSdP=config.AtomLayoutMSdP,
        AtomLayoutNdKV=config.AtomLayoutNdKV,
        AtomLayoutMdQ=config.AtomLayoutMdQ,
        num_threads=128 * (config.num_wg + 1),
        dQ_single_wg=config.dQ_single_wg,
    )
    kernel.num_threads_per_warp_group = 128  # as __call__ sets it
    sizes = []

    @cute.jit
    def measure():
        kernel._setup_attributes()
        sizes.append(kernel._get_shared_storage_cls().size_in_bytes())

    cute.compile(measure)
    assert sizes == [backward.sm90_smem_bytes(problem, config)]


def test_the_kernels_own_choice_fits(interface):
    for head_dim, sparse in itertools.product((64, 96, 128, 192, 256), (False, True)):
        case = make_case(make_problem(head_dim=head_dim, mask=CAUSAL if sparse else Mask()), "backward")
        assert not codes(case) & {"FA4-B014", "FA4-B015", "FA4-B016"}


CONFIGS = st.builds(
    backward.Sm90Backward,
    tile_m=st.sampled_from((64, 80, 96, 112, 128, 192)),
    tile_n=st.sampled_from((48, 64, 80, 96, 112, 128, 192)),
    num_stages_Q=st.just(2),
    num_stages_dO=st.sampled_from((1, 2)),
    num_stages_PdS=st.sampled_from((1, 2)),
    SdP_swapAB=st.booleans(),
    dKV_swapAB=st.booleans(),
    dQ_swapAB=st.booleans(),
    AtomLayoutMSdP=st.sampled_from((1, 2, 3)),
    AtomLayoutNdKV=st.sampled_from((1, 2, 3)),
    AtomLayoutMdQ=st.sampled_from((1, 2, 3)),
    num_wg=st.sampled_from((2, 3)),
)


@settings(max_examples=300, deadline=None)
@given(config=CONFIGS, head_dim=st.sampled_from((64, 128, 192, 256)))
def test_products_are_those_of_upstreams_own_search(interface, config, head_dim):
    """It takes no layout that does not divide the warp groups, and pads head dimensions to 32."""
    from flash_attn.cute.sm90_config_search import _check_mma

    layouts = (config.AtomLayoutMSdP, config.AtomLayoutNdKV, config.AtomLayoutMdQ)
    assume(not any(config.num_wg % each for each in layouts))
    shapes = (
        (config.tile_m, config.tile_n, config.AtomLayoutMSdP, config.SdP_swapAB),
        (config.tile_n, head_dim, config.AtomLayoutNdKV, config.dKV_swapAB),
        (config.tile_n, head_dim, config.AtomLayoutNdKV, config.dKV_swapAB),
        (config.tile_m, head_dim, config.AtomLayoutMdQ, config.dQ_swapAB),
    )
    theirs = [
        _check_mma(rows, columns, config.num_wg, layout, swap) is not None for rows, columns, layout, swap in shapes
    ]
    problem = make_problem(head_dim=head_dim, mask=Mask())
    assert [each.divides for each in backward.sm90_products(problem, config)] == theirs
    case = make_case(problem, "backward", **{name: getattr(config, name) for name in backward.NAMES})
    assert ("FA4-B026" in codes(case)) == (not all(theirs))


@pytest.mark.parametrize(
    ("head_dim", "config", "code"),
    [  # each was NaN, infinite or off by more than 1 on an H200
        (128, {"tile_m": 80, "tile_n": 64, "AtomLayoutMSdP": 2, "AtomLayoutNdKV": 1}, "FA4-B027"),
        (128, {"tile_m": 112, "tile_n": 64, "AtomLayoutMSdP": 2, "AtomLayoutNdKV": 1}, "FA4-B027"),
        (192, {"num_wg": 3, "AtomLayoutNdKV": 3}, "FA4-B031"),
        (40, {}, "FA4-B032"),
        (80, {}, "FA4-B032"),
    ],
)
def test_silently_wrong_gradients_are_errors(head_dim, config, code):
    stages = {"num_stages_dO": 1, "num_stages_PdS": 1}
    case = make_case(make_problem(head_dim=head_dim, mask=Mask()), "backward", **stages, **config)
    assert {each for each in codes(case, Severity.ERROR) if each.startswith("FA4-B")} == {code}


SMALL = {"tile_m": 64, "tile_n": 64, "dKV_swapAB": False, "AtomLayoutNdKV": 1, "AtomLayoutMdQ": 1}


@pytest.mark.parametrize(
    ("head_dim", "config"),
    [  # each was right there
        (128, {"tile_m": 64, "tile_n": 80, "AtomLayoutNdKV": 1}),
        (128, {"tile_m": 64, "tile_n": 112, "AtomLayoutNdKV": 1}),
        (64, {**SMALL, "num_wg": 1}),
        (64, {**SMALL, "num_stages_Q": 3, "num_stages_dO": 3, "num_stages_PdS": 3}),
        (144, {}),
        (160, {}),
    ],
)
def test_what_only_looks_suspicious_is_let_through(head_dim, config):
    plain = {"SdP_swapAB": False, "dKV_swapAB": True, "dQ_swapAB": False, "num_stages_dO": 1, "num_stages_PdS": 1}
    case = make_case(make_problem(head_dim=head_dim, mask=Mask()), "backward", **{**plain, **config})
    assert not codes(case, Severity.ERROR)
