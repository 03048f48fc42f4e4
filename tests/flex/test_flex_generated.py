"""What inductor generates for a GPU, on a machine that has none: nothing is compiled, nothing runs."""

import re

import pytest
from flex_runs import make_problem, make_work

from attnctl_kernels.contract import CompileError

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
flex = pytest.importorskip("torch.nn.attention.flex_attention")
if torch.cuda.is_available():
    pytest.skip("describes a GPU where there is none", allow_module_level=True)

from torch._dynamo.utils import counters  # noqa: E402 - needs torch
from torch._inductor.utils import get_code  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from attnctl_kernels.flex.launch import source  # noqa: E402
from attnctl_kernels.flex.launch.block_mask import flex_mask  # noqa: E402
from attnctl_kernels.flex.launch.target import described  # noqa: E402

GPU = torch.device("cuda:0")
SMALL = make_problem(256, heads=2, batch_size=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "cache_folder", lambda: tmp_path)
    return tmp_path


def generated(task, candidate, arch="sm_90"):
    with described(arch):
        return source.generated(task, candidate, flex_mask(task.problem, candidate.sparse_block), GPU)


def kernel(code):
    """The attention kernel's source, without the name that depends on the graph around it."""
    name, text = re.search(r"(triton_tem\w*) = async_compile\.triton\(.*?'''(.*?)'''", code, re.DOTALL).groups()
    return text.replace(name, "kernel")


def test_twelve_configs_in_one_process_each_get_a_kernel_of_their_own(cache):
    """dynamo would run all but the first eight eagerly; it takes no part."""
    counters.clear()
    tiles = [(m, n, stages) for m in (64, 128) for n in (32, 64, 128) for stages in (2, 3)]
    codes = {}
    for m, n, stages in tiles:
        work = make_work(SMALL, BLOCK_M=m, BLOCK_N=n, num_stages=stages, num_warps=4)
        code, cached = generated(*work)
        assert not cached
        assert f"BLOCK_M : tl.constexpr = {m}\n" in code
        assert f"BLOCK_N : tl.constexpr = {n}\n" in code
        assert f"\nnum_stages={stages},\n" in code
        codes[kernel(code)] = work
    assert len(codes) == len(tiles) == len(list(cache.glob("*.py")))
    assert not counters["frames"]
    assert not counters["graph_break"]
    code, cached = generated(*work)
    assert cached
    assert kernel(code) in codes


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="dynamo makes real tensors of fake CUDA ones")
def test_kernel_is_the_one_that_torch_compile_makes():
    task, candidate = make_work(make_problem(256, heads=4, heads_kv=2, batch_size=1))
    ours, _ = generated(task, candidate)
    mask = flex_mask(task.problem, candidate.sparse_block)

    def call():
        q, k, v = (
            torch.empty(1, 256, heads, 64, dtype=torch.bfloat16, device=GPU).transpose(1, 2) for heads in (4, 2, 2)
        )
        lists = {name: torch.empty(each.shape, dtype=torch.int32, device=GPU) for name, each in mask.lists.items()}
        block_mask = flex.BlockMask(
            seq_lengths=mask.seqlens,
            BLOCK_SIZE=mask.block_size,
            mask_mod=lambda b, h, q, k: k <= q + 0,  # as the pattern writes it
            **lists,
        )
        attention = torch.compile(flex.flex_attention, dynamic=False)
        attention(q, k, v, block_mask=block_mask, enable_gqa=True, kernel_options=dict(candidate.config))

    with described("sm_90"), torch._inductor.config.patch(source.settings()), FakeTensorMode():
        theirs = get_code(call)[0]
    assert kernel(ours) == kernel(theirs)


def test_an_option_that_torch_ignores_is_an_error():
    """Rows of 48 bytes have no tensor map, so that inductor loads without one."""
    problem = make_problem(256, heads=1, head_dim=24, batch_size=1, dtype="float16")
    with pytest.raises(CompileError, match="torch ignored USE_TMA: True was asked for, and the kernel has False"):
        generated(*make_work(problem, USE_TMA=True))


def test_code_of_another_config_is_an_error():
    code, _ = generated(*make_work(SMALL, BLOCK_M=64, BLOCK_N=64))
    task, other = make_work(SMALL, BLOCK_M=64, BLOCK_N=32)
    with pytest.raises(CompileError, match="torch ignored BLOCK_N: 32 was asked for, and the kernel has 64"):
        source._check_followed(task, other, code)
    with pytest.raises(CompileError, match="no FlexAttention kernel"):
        source._check_followed(task, other, "call = None")


def test_what_inductor_refuses_is_one_line():
    with pytest.raises(CompileError, match="ValueError: Q and KV block size must be divisible"):
        generated(*make_work(SMALL, block=(96, 96)))


def test_another_device_is_described_and_forgotten():
    before = torch.cuda.get_device_capability, torch._dynamo.device_interface.get_interface_for_device("cuda")
    code, _ = generated(*make_work(SMALL, arch="sm_100"), arch="sm_100")
    assert "cc=100" in code
    after = torch.cuda.get_device_capability, torch._dynamo.device_interface.get_interface_for_device("cuda")
    assert before == after


@pytest.mark.parametrize("written", [{}, {"fwd_BLOCK_M": 32, "PRESCALE_QK": True}, {"return_lse": False}])
def test_options_are_those_that_flex_attention_passes_on(written):
    from attnctl_kernels.flex.options import KERNEL_OPTIONS, kernel_options

    q = torch.empty(1, 1, 1, 1, device="meta")
    given = {name: value for name, value in written.items() if name in KERNEL_OPTIONS}
    with torch.set_grad_enabled(written.get("return_lse", True)):
        theirs = flex._apply_kernel_options(q, q, q, False, given)
    assert kernel_options(written, "cuda") == theirs
