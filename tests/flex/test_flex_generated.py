"""What inductor generates for a GPU, on a machine that has none: nothing is compiled, nothing runs."""

import re

import pytest
from flex_runs import make_problem, make_work

from attnctl_kernels.contract import CompileError, Outcome

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
flex = pytest.importorskip("torch.nn.attention.flex_attention")
if torch.cuda.is_available():
    pytest.skip("describes a GPU where there is none", allow_module_level=True)

from functorch.compile import make_boxed_func, min_cut_rematerialization_partition  # noqa: E402 - needs torch
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor.compile_fx import compile_fx_inner  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch._inductor.utils import get_code  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402
from torch.fx.passes.fake_tensor_prop import FakeTensorProp  # noqa: E402

from attnctl.worker import failures  # noqa: E402
from attnctl_kernels.flex.launch import LAUNCHER, source  # noqa: E402
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


def body(code):
    """The kernel below its header, in sorted lines: options that a candidate states stand before those it does not."""
    text = kernel(code)
    return sorted(text[text.index("\ndef kernel(") :].splitlines())


def graphs_of_training(attention, *inputs):
    """What `torch.compile` hands to inductor, forward and backward: graph; shapes, strides and types of its inputs."""
    graphs = []

    def capture(module, examples):
        graphs.append((module, [(each.shape, each.stride(), each.dtype) for each in examples]))
        return make_boxed_func(module)

    backend = aot_autograd(
        fw_compiler=capture,
        bw_compiler=capture,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table,
    )
    torch.compile(attention, dynamic=False, backend=backend)(*inputs).sum().backward()
    return graphs


def generated_for_a_gpu(module, inputs):
    """Inductor's code for a graph that was captured on the CPU, where the operator writes no log-sum-exp."""
    for node in module.graph.nodes:
        options = ({**each, "OUTPUT_LOGSUMEXP": True} if isinstance(each, dict) else each for each in node.args)
        node.args = tuple(options)
        if "device" in node.kwargs:
            node.update_kwarg("device", GPU)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with described("sm_90"), torch._inductor.config.patch(source.settings()), mode:
        fakes = [torch.empty_strided(shape, stride, dtype=dtype, device=GPU) for shape, stride, dtype in inputs]
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*fakes)
        code, *_ = get_code(lambda: compile_fx_inner(module, fakes))
    return code


def test_kernels_are_those_that_torch_compile_makes_in_training(monkeypatch):
    """Forward and backward: from dynamo and autograd on the CPU, then inductor for a GPU."""
    problem = make_problem(256, heads=4, heads_kv=2, batch_size=1)
    mask = flex_mask(problem, (128, 128))
    block_mask = flex.BlockMask(
        seq_lengths=mask.seqlens,
        BLOCK_SIZE=mask.block_size,
        mask_mod=lambda b, h, q, k: k <= q + 0,  # as the pattern writes it
        **{name: torch.from_numpy(array) for name, array in mask.lists.items()},
    )

    def attention(*rows):
        views = (each.transpose(1, 2) for each in rows)
        return flex.flex_attention(*views, block_mask=block_mask, enable_gqa=True).transpose(1, 2)

    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)  # it refuses gradients on the CPU
    rows = (torch.randn(1, 256, heads, 64, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2))
    graphs = graphs_of_training(attention, *rows)
    for pass_name, graph in zip(("forward", "backward"), graphs, strict=True):
        ours, _ = generated(*make_work(problem, pass_name))
        assert body(ours) == body(generated_for_a_gpu(*graph)), pass_name


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


def test_code_that_runs_eagerly_is_a_compile_error_and_not_kept(cache, monkeypatch):
    monkeypatch.setattr(
        source, "_generate", lambda *_: "def call(args):\n    return torch.ops.higher_order.flex_attention"
    )
    with pytest.raises(CompileError) as caught:
        LAUNCHER.compile(*make_work(SMALL))
    assert failures.as_result(caught.value, "first_call", None).outcome is Outcome.COMPILE_ERROR
    assert caught.value.args == ("torch generated no FlexAttention kernel for this call",)
    assert not list(cache.iterdir())


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
