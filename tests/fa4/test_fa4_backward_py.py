"""The backward kernel of sm_90 against its own table and allocation, and the rules about it."""

import itertools

import pytest
from fa4_cases import CAUSAL, codes, make_case, make_problem

from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4 import backward

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
